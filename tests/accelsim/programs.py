"""Seeded random programs and random legal mappings of them, for tests of everything that takes a mapping.

Programs have regions (some of them loops), inputs that are updated in place, buffers that are updated in place,
outputs, and buffers that live only inside a region. Mappings have productions, prefetches, evictions, and several
windows of one buffer. They are made the blunt way: propose a window, keep it if nothing speaks against it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from accelsim.device import Device
from accelsim.mapping import Mapping
from accelsim.program import Program

SMALL = Device(
    name="small",
    title="A chip for tests",
    flops_per_second=10**12,  # 1 ps a flop
    slow_bytes_per_second=10**11,  # 10 ps a byte
    fast_read_bytes_per_second=10**12,
    fast_write_bytes_per_second=5 * 10**11,
    dma_bytes_per_second=10**11,
    dma_latency_ps=7,
    capacity_bytes=4096,
    alignment_bytes=8,
    memory_space=1,
)


def program_of(
    *,
    steps: list[dict[str, object]],
    sizes: dict[str, int],
    inputs: tuple[str, ...] = (),
    outputs: tuple[str, ...] = (),
    name: str = "handmade",
) -> Program:
    """Build a program from steps ``{"flops", "reads", "writes", "repeat", "region"}`` that name their buffers.

    A read or write is a buffer's name, or ``(name, bytes)``. Live ranges follow from the uses and the regions.
    """
    names = list(sizes)
    regions = [int(step.get("region", -1)) for step in steps]  # type: ignore[call-overload]
    rows: list[tuple[int, int, int, bool, int]] = []
    for number, step in enumerate(steps):
        for write, key in ((False, "reads"), (True, "writes")):
            for operand, item in enumerate(step.get(key, ())):  # type: ignore[arg-type]
                buffer, moved = item if isinstance(item, tuple) else (item, sizes[item])
                rows.append((number, names.index(buffer), moved, write, -1 if write else operand))
    total = len(steps)
    start, end = [], []
    for index, buffer in enumerate(names):
        used = [row[0] for row in rows if row[1] == index] or [0]
        low = 0 if buffer in inputs else min(used)
        high = total if buffer in outputs else max(used) + 1
        start.append(low)
        end.append(high)
        _extend(start, end, regions, inside=buffer not in inputs and buffer not in outputs)
    column = list(zip(*rows, strict=True)) if rows else [(), (), (), (), ()]
    return Program(
        name=name,
        step_name=tuple(f"step.{number}" for number in range(total)),
        step_opcode=tuple("fusion" for _ in steps),
        step_computation=tuple("main" for _ in steps),
        step_flops=np.array([step.get("flops", 0) for step in steps], np.int64),
        step_repeat=np.array([step.get("repeat", 1) for step in steps], np.int64),
        step_region=np.array(regions, np.int32),
        access_step=np.array(column[0], np.int32),
        access_buffer=np.array(column[1], np.int32),
        access_value=np.array(column[1], np.int32),
        access_bytes=np.array(column[2], np.int64),
        access_write=np.array(column[3], np.bool_),
        access_operand=np.array(column[4], np.int32),
        buffer_name=tuple(names),
        buffer_size=np.array(list(sizes.values()), np.int64),
        buffer_start=np.array(start, np.int32),
        buffer_end=np.array(end, np.int32),
        buffer_input=np.array([buffer in inputs for buffer in names], np.bool_),
        buffer_output=np.array([buffer in outputs for buffer in names], np.bool_),
        value_name=tuple(names),
        value_buffer=np.arange(len(names), dtype=np.int32),
        value_start=np.array(start, np.int32),
        value_end=np.array(end, np.int32),
    )


def _extend(start: list[int], end: list[int], regions: list[int], *, inside: bool) -> None:
    """Extend the last live range over every region that it enters or leaves."""
    low, high = start[-1], end[-1]
    if not regions:
        return
    if inside and regions[low] >= 0 and regions[low] == regions[high - 1]:
        return
    while 0 < low < len(regions) and regions[low] >= 0 and regions[low - 1] == regions[low]:
        low -= 1
    while 0 < high < len(regions) and regions[high] >= 0 and regions[high - 1] == regions[high]:
        high += 1
    start[-1], end[-1] = low, high


def random_program(seed: int, *, steps: int = 24, buffers: int = 12, most_bytes: int = 1500) -> Program:
    """Return a valid program of about these numbers of steps and buffers; the same seed gives the same program."""
    rng = np.random.default_rng([seed, 1])
    table: list[dict[str, object]] = []
    regions = 0
    while len(table) < steps:
        span = int(rng.integers(1, 6))
        if rng.random() < 0.3:
            repeat = int(rng.integers(1, 5))
            table += [{"region": regions, "repeat": repeat * int(rng.integers(1, 3))} for _ in range(span)]
            regions += 1
        else:
            table += [{"region": -1, "repeat": 1} for _ in range(span)]
    table = table[:steps]
    for step in table:
        step["flops"] = int(rng.integers(0, 20_000)) if rng.random() < 0.7 else 0
        step["reads"], step["writes"] = [], []

    sizes: dict[str, int] = {}
    inputs, outputs = [], []
    for index in range(buffers):
        name = f"b{index}"
        size = int(rng.integers(1, most_bytes + 1))
        if rng.random() < 0.05:
            size = 0
        elif rng.random() < 0.05:
            size = SMALL.capacity_bytes + 1
        sizes[name] = size
        kind = rng.random()
        if kind < 0.3:
            inputs.append(name)
        if kind < 0.08 or kind > 0.8:
            outputs.append(name)
        born = 0 if name in inputs else int(rng.integers(0, steps))
        if name not in inputs:
            table[born]["writes"].append(name)  # type: ignore[attr-defined]
        for _ in range(int(rng.integers(0, 6))):
            step = int(rng.integers(born, steps))
            if step == born and name not in inputs:
                continue
            moved = size if rng.random() < 0.8 else int(rng.integers(0, size + 1))
            table[step]["reads"].append((name, moved))  # type: ignore[attr-defined]
            if rng.random() < 0.2:
                table[step]["writes"].append((name, moved))  # type: ignore[attr-defined]
    made = program_of(steps=table, sizes=sizes, inputs=tuple(inputs), outputs=tuple(outputs), name=f"random {seed}")
    return dataclasses.replace(made, notes=(f"seed {seed}",))


def random_mapping(program: Program, device: Device, seed: int, *, tries: int = 60, longest: int = 10**6) -> Mapping:
    """Return a legal mapping; the same seed gives the same mapping. A window is at most `longest` steps."""
    rng = np.random.default_rng([seed, 2])
    boundary = program.boundaries()
    accesses = [np.flatnonzero(program.access_buffer == buffer) for buffer in range(program.buffers)]
    rows: list[tuple[int, int, int, int, int, bool, int]] = []
    if not program.buffers or not program.steps:
        return Mapping.all_slow(program)
    for _ in range(tries):
        buffer = int(rng.integers(program.buffers))
        row = proposal(program, device, rng, boundary, buffer, longest)
        if row is None or any(clash(program, row, other) for other in rows):
            continue
        if sound(program, buffer, accesses[buffer], [other for other in [*rows, row] if other[0] == buffer]):
            rows.append(row)
    columns = zip(*rows, strict=True) if rows else ((),) * 7
    names = ("buffer", "offset", "start", "ready", "end", "prefetched", "evict")
    return Mapping.from_residencies(program, **dict(zip(names, columns, strict=True)))


def proposal(
    program: Program, device: Device, rng: np.random.Generator, boundary: np.ndarray, buffer: int, longest: int
) -> tuple[int, int, int, int, int, bool, int] | None:
    size = int(program.buffer_size[buffer])
    born, dead = int(program.buffer_start[buffer]), int(program.buffer_end[buffer])
    if not 0 < size <= device.capacity_bytes:
        return None
    units = (device.capacity_bytes - size) // device.alignment_bytes
    # Low offsets twice as often, so that several windows fit at one time.
    offset = int(rng.integers(0, units + 1)) * device.alignment_bytes
    if rng.random() < 0.5:
        offset = min(offset, int(rng.integers(0, units + 1)) * device.alignment_bytes)
    region = program.step_region
    lives_inside = not (program.buffer_input[buffer] or program.buffer_output[buffer])
    if lives_inside and region[born] >= 0 and region[born] == region[dead - 1]:
        return buffer, offset, born, born, dead, False, -1
    points = np.flatnonzero(boundary[: program.steps + 1])
    points = points[(points >= born)]
    prefetched = bool(program.buffer_input[buffer]) or rng.random() < 0.5
    if prefetched:
        start = rng.choice(points)
        start, ready = sorted((start, rng.choice(points[abs(points - start) <= longest // 2])))
    else:
        start = ready = born
    later = points[(points > ready) & (points <= start + longest)]
    if not len(later):
        return None
    evict = -1
    if rng.random() < 0.5:
        evict, end = sorted(rng.choice(later, 2).tolist())
        if evict > dead:
            return None
    else:
        end = int(rng.choice(later))
        if end > dead:
            return None
    return buffer, offset, int(start), int(ready), int(end), prefetched, int(evict)


def clash(program: Program, row: tuple[int, ...], other: tuple[int, ...]) -> bool:
    if row[2] >= other[4] or other[2] >= row[4]:
        return False
    sizes = program.buffer_size
    apart = row[1] >= other[1] + sizes[other[0]] or other[1] >= row[1] + sizes[row[0]]
    return row[0] == other[0] or not apart


def sound(program: Program, buffer: int, used: np.ndarray, rows: list[tuple[int, ...]]) -> bool:
    """Walk the program step by step and see whether every copy and every use of the buffer finds current bytes."""
    slow_current = bool(program.buffer_input[buffer])
    first_use = int(program.access_step[used].min()) if len(used) else int(program.buffer_start[buffer])
    written: dict[tuple[int, ...], bool] = {}
    eventful = {program.steps, first_use, *program.access_step[used].tolist()}
    for row in rows:
        eventful.update((row[2], row[3], row[4]))
    for step in sorted(eventful):
        for row in rows:
            if row[4] == step and row[6] >= 0:
                if not written.get(row):
                    return False
                slow_current = True
        for row in rows:
            if row[2] == step and row[5] and not slow_current:
                return False
        here = [access for access in used.tolist() if program.access_step[access] == step]
        serving = [row for row in rows if row[3] <= step < row[4]]
        coming = [row for row in rows if row[2] <= step < row[3]]
        defines = step == first_use and not program.buffer_input[buffer]
        reads = any(not program.access_write[access] for access in here)
        writes = [access for access in here if program.access_write[access]]
        if defines or writes:
            if coming:
                return False
            if serving:
                if 0 <= serving[0][6] <= step:
                    return False
                slow_current = False
                written[serving[0]] = True
        if reads and not serving and not slow_current and not defines:
            return False
        if (defines or writes) and not serving:
            whole = any(program.access_bytes[access] >= program.buffer_size[buffer] for access in writes)
            slow_current = slow_current or defines or whole
    return slow_current or not program.buffer_output[buffer]
