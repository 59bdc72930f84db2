"""Who is in fast memory, when, at which offset; and is that legal?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from accelsim.device import Device
from accelsim.errors import InputError
from accelsim.program import Program

MOST_PROBLEMS = 50

COLUMNS: dict[str, type[np.generic]] = {
    "buffer": np.int32,
    "offset": np.int64,
    "start": np.int32,
    "ready": np.int32,
    "end": np.int32,
    "prefetched": np.bool_,
    "evict": np.int32,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """R residencies in fast memory, sorted by (start, buffer), and where each of the K accesses finds its bytes.

    A residency occupies ``[offset, offset + size)`` bytes during the steps ``[start, end)``.
    Prefetched: its copy from slow memory is issued before step ``start`` and awaited before step ``ready``.
    Otherwise the buffer is produced there: ``start == ready ==`` the step that defines the buffer.
    Evicted: a copy to slow memory is issued before step ``evict`` and awaited before step ``end``.
    An access at step t is served from fast memory exactly if a residency of its buffer has ``ready <= t < end``.
    """

    buffer: NDArray[np.int32]  # [R]
    offset: NDArray[np.int64]  # [R] bytes
    start: NDArray[np.int32]  # [R]
    ready: NDArray[np.int32]  # [R]
    end: NDArray[np.int32]  # [R]
    prefetched: NDArray[np.bool_]  # [R]
    evict: NDArray[np.int32]  # [R] -1: not evicted
    access_offset: NDArray[np.int64]  # [K] offset of the buffer in fast memory at this access, -1: slow memory

    @property
    def residencies(self) -> int:
        return len(self.buffer)

    @classmethod
    def all_slow(cls, program: Program) -> Mapping:
        """Return the mapping that leaves every buffer in slow memory."""
        return cls.from_residencies(program, buffer=(), offset=(), start=(), ready=(), end=(), prefetched=(), evict=())

    @classmethod
    def from_residencies(
        cls,
        program: Program,
        *,
        buffer: ArrayLike,
        offset: ArrayLike,
        start: ArrayLike,
        ready: ArrayLike,
        end: ArrayLike,
        prefetched: ArrayLike,
        evict: ArrayLike,
    ) -> Mapping:
        """Sort the residencies and derive where each access finds its bytes. Does not ask whether that is legal."""
        given = locals()
        columns: dict[str, Any] = {name: np.asarray(given[name], dtype) for name, dtype in COLUMNS.items()}
        order = np.lexsort((columns["buffer"], columns["start"]))
        columns = {name: column[order] for name, column in columns.items()}
        served = _served(program, columns["buffer"], columns["offset"], columns["ready"], columns["end"])
        return cls(**columns, access_offset=served)


def _served(
    program: Program,
    buffer: NDArray[np.int32],
    offset: NDArray[np.int64],
    ready: NDArray[np.int32],
    end: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Return the offset at which each access finds its bytes, `int64[K]`, -1 for slow memory."""
    stride = program.steps + 1
    key = program.access_buffer.astype(np.int64) * stride + program.access_step
    order = np.argsort(key, kind="stable")
    key = key[order]
    base = buffer.astype(np.int64) * stride
    first = np.searchsorted(key, base + np.clip(ready, 0, program.steps))
    last = np.searchsorted(key, base + np.clip(end, 0, program.steps))
    count = np.maximum(last - first, 0)
    place = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    served = np.full(program.accesses, -1, np.int64)
    served[order[place]] = np.repeat(offset, count)
    return served


def check(program: Program, device: Device, mapping: Mapping) -> None:
    """Refuse an illegal mapping.

    Raises:
        InputError: ``mapping-illegal``, with the first three problems.
    """
    problems = validate(program, device, mapping)
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        raise InputError("the mapping is illegal: " + "; ".join(problems[:3]) + more, code="mapping-illegal")


def validate(program: Program, device: Device, mapping: Mapping) -> list[str]:
    """Say what makes the mapping illegal: a sentence for each of the first 50 problems, none if it is legal.

    Built on the definition alone and on nothing that a solver uses to make mappings.
    """
    problems: list[str] = []
    # Each group needs what the groups before it have established (dtypes, then indices that are in range).
    for group in (_malformed, _out_of_range, _illegal):
        for problem in group(program, device, mapping):
            problems.append(problem)
            if len(problems) == MOST_PROBLEMS:
                return problems
        if problems:
            return problems
    return problems


def _malformed(program: Program, device: Device, mapping: Mapping) -> Iterator[str]:
    columns = {**COLUMNS, "access_offset": np.int64}
    rows = len(mapping.buffer) if isinstance(mapping.buffer, np.ndarray) and mapping.buffer.ndim == 1 else 0
    for name, dtype in columns.items():
        column = getattr(mapping, name)
        length = program.accesses if name == "access_offset" else rows
        if not isinstance(column, np.ndarray) or column.ndim != 1:
            yield f"column {name} is not a one-dimensional array"
        elif column.dtype != dtype:
            yield f"column {name} holds {column.dtype}, not {np.dtype(dtype)}"
        elif len(column) != length:
            yield f"column {name} has {len(column)} rows, not {length}"


def _out_of_range(program: Program, device: Device, mapping: Mapping) -> Iterator[str]:
    steps = program.steps
    for row in np.flatnonzero((mapping.buffer < 0) | (mapping.buffer >= program.buffers)).tolist():
        yield f"residency {row} is of buffer {mapping.buffer[row]}, but there are {program.buffers}"
    for name, least in (("start", 0), ("ready", 0), ("end", 0), ("evict", -1)):
        column = getattr(mapping, name)
        for row in np.flatnonzero((column < least) | (column > steps)).tolist():
            yield f"residency {row}: {name} {column[row]} is not a step from {least} to {steps}"
    key = mapping.start.astype(np.int64) * max(program.buffers, 1) + mapping.buffer
    for row in np.flatnonzero(np.diff(key) < 0).tolist():
        yield f"residency {row + 1} is out of order: rows are sorted by start, then by buffer"


def _illegal(program: Program, device: Device, mapping: Mapping) -> Iterator[str]:
    bad = np.zeros(mapping.residencies, bool)  # rows whose window makes no sense; what depends on it is not asked
    for row, problem in _window_problems(program, device, mapping):
        bad[row] = True
        yield f"{_title(program, mapping, row)}: {problem}"
    yield from _overlaps(program, mapping)
    yield from _value_problems(program, mapping, skip=bad)
    yield from _access_problems(program, mapping)


def _window_problems(program: Program, device: Device, mapping: Mapping) -> Iterator[tuple[int, str]]:
    size = program.buffer_size[mapping.buffer]
    born = program.buffer_start[mapping.buffer]
    dead = program.buffer_end[mapping.buffer]
    offset, start, ready, end, evict = mapping.offset, mapping.start, mapping.ready, mapping.end, mapping.evict
    prefetched, evicted = mapping.prefetched, mapping.evict >= 0
    capacity, alignment = device.capacity_bytes, device.alignment_bytes

    def rows(wrong: NDArray[np.bool_]) -> Iterable[int]:
        return np.flatnonzero(wrong).tolist()

    for row in rows(size <= 0):
        yield row, "an empty buffer cannot be resident"
    for row in rows(size > capacity):
        yield row, f"{size[row]} bytes cannot be resident in {capacity} bytes of fast memory"
    for row in rows(offset < 0):
        yield row, f"offset {offset[row]} is negative"
    for row in rows(offset % alignment != 0):
        yield row, f"offset {offset[row]} is not a multiple of {alignment}"
    for row in rows((offset >= 0) & (size <= capacity) & (offset > capacity - size)):
        yield row, f"bytes {offset[row]} to {int(offset[row]) + int(size[row])} end above the {capacity} of fast memory"
    for row in rows(start > ready):
        yield row, f"ready at step {ready[row]}, before its start at step {start[row]}"
    for row in rows(ready >= end):
        yield row, f"ends at step {end[row]}, not after it is ready at step {ready[row]}"
    for row in rows(~prefetched & program.buffer_input[mapping.buffer]):
        yield row, "an input is not produced in fast memory, it can only be prefetched"
    for row in rows(~prefetched & ((start != ready) | (start != born))):
        yield row, f"produced in fast memory, so it starts and is ready at step {born[row]}, where it is defined"
    for row in rows(start < born):
        yield row, f"starts at step {start[row]}, before the buffer is defined at step {born[row]}"
    for row in rows(~evicted & (end > dead)):
        yield row, f"ends at step {end[row]}, after the buffer's last use; it is needed up to step {dead[row]}"
    for row in rows(evicted & ((evict <= ready) | (evict > end))):
        yield row, f"evicted at step {evict[row]}, not after it is ready ({ready[row]}) and up to its end ({end[row]})"
    for row in rows(evicted & (evict > dead)):
        yield row, f"evicted at step {evict[row]}, after the buffer's last use; it is needed up to step {dead[row]}"

    region = _home_region(program)[mapping.buffer]
    inside = region >= 0
    for row in rows(inside & (prefetched | evicted)):
        yield row, f"the buffer lives inside loop or branch {region[row]}, where nothing can be copied"
    for row in rows(inside & ~prefetched & ~evicted & (end != dead)):
        yield row, f"ends at step {end[row]}; inside loop or branch {region[row]} it must stay up to step {dead[row]}"
    boundary = program.boundaries()
    for name, column, used in (
        ("starts", start, ~inside),
        ("is ready", ready, ~inside),
        ("ends", end, ~inside),
        ("is evicted", evict, ~inside & evicted),
    ):
        for row in rows(used & ~boundary[np.maximum(column, 0)]):
            step = column[row]
            yield row, f"{name} at step {step}, inside loop or branch {program.step_region[step]}"


def _home_region(program: Program) -> NDArray[np.int32]:
    """Return the region in which a buffer's whole life lies, `int32[N]`, -1 if it is alive outside any region."""
    if not program.steps:
        return np.full(program.buffers, -1, np.int32)
    first = np.clip(program.buffer_start, 0, program.steps - 1)
    last = np.clip(program.buffer_end - 1, 0, program.steps - 1)
    region = program.step_region
    home = (region[first] == region[last]) & ~program.buffer_input & ~program.buffer_output
    inside: NDArray[np.int32] = np.where(home, region[first], -1).astype(np.int32)
    return inside


def _overlaps(program: Program, mapping: Mapping) -> Iterator[str]:
    size = program.buffer_size[mapping.buffer]
    pairs = _overlapping_pairs(
        mapping.buffer, mapping.offset, size, mapping.start, mapping.end, np.empty((MOST_PROBLEMS, 2), np.int64)
    )
    for older, newer in pairs.tolist():
        step = mapping.start[newer]
        if mapping.buffer[older] == mapping.buffer[newer]:
            yield f"{_title(program, mapping, newer)}: resident twice at step {step}, see residency {older}"
        else:
            other = _title(program, mapping, older)
            yield f"{_title(program, mapping, newer)}: shares bytes with {other} at step {step}"


@njit(cache=True, nogil=True)
def _overlapping_pairs(buffer: Any, offset: Any, size: Any, start: Any, end: Any, pairs: Any) -> Any:
    """Return `int64[found, 2]`: the residency that was there first, and the one that clashes with it."""
    found = 0
    active = np.empty(len(buffer), np.int64)
    count = 0
    for row in range(len(buffer)):  # ascending start
        if start[row] >= end[row]:
            continue
        kept = 0
        for place in range(count):
            other = active[place]
            if end[other] <= start[row]:
                continue
            active[kept] = other
            kept += 1
            apart = offset[other] >= offset[row] + size[row] or offset[row] >= offset[other] + size[other]
            if (buffer[other] == buffer[row] or not apart) and found < len(pairs):
                pairs[found, 0] = other
                pairs[found, 1] = row
                found += 1
        active[kept] = row
        count = kept + 1
    return pairs[:found]


_PREFETCH_OF_NOTHING, _WRITE_WHILE_COMING, _WRITE_AFTER_EVICTION = 0, 1, 2
_NOTHING_TO_EVICT, _STALE_READ, _STALE_OUTPUT = 3, 4, 5


def _value_problems(program: Program, mapping: Mapping, *, skip: NDArray[np.bool_]) -> Iterator[str]:
    """Follow the bytes of each resident buffer from step to step: is there always a current copy where it is needed?"""
    # A buffer with a window that makes no sense, or with windows that overlap, has been reported already.
    order = np.lexsort((mapping.start, mapping.buffer))
    buffer, end, start = mapping.buffer[order], mapping.end[order], mapping.start[order]
    clash = (buffer[1:] == buffer[:-1]) & (start[1:] < end[:-1])
    excluded = np.zeros(program.buffers, bool)
    excluded[mapping.buffer[skip]] = True
    excluded[buffer[1:][clash]] = True

    rank = np.lexsort((program.access_write, program.access_step, program.access_buffer))
    ordered_buffer = program.access_buffer[rank]
    found = _follow(
        buffer,
        start,
        mapping.ready[order],
        end,
        mapping.prefetched[order],
        mapping.evict[order],
        program.access_step[rank],
        program.access_write[rank],
        program.access_bytes[rank],
        np.searchsorted(ordered_buffer, np.arange(program.buffers + 1)),
        program.buffer_size,
        program.buffer_start,
        program.buffer_input,
        program.buffer_output,
        excluded,
        program.steps,
        np.empty((MOST_PROBLEMS, 3), np.int64),
    )
    texts = {
        _PREFETCH_OF_NOTHING: "prefetched at step {step}, when slow memory has no current copy",
        _WRITE_WHILE_COMING: "the buffer is written at step {step}, while it is being copied to fast memory",
        _WRITE_AFTER_EVICTION: "the buffer is written at step {step}, after its eviction was issued",
        _NOTHING_TO_EVICT: "evicted at step {step}, but nothing was written in fast memory before",
        _STALE_READ: "step {step} reads slow memory, which has no current copy after this residency",
        _STALE_OUTPUT: "an output, but slow memory has no current copy at the end of the program",
    }
    for kind, row, step in found.tolist():
        yield f"{_title(program, mapping, int(order[row]))}: {texts[kind].format(step=step)}"


@njit(cache=True, nogil=True)
def _note(problems: Any, found: Any, kind: Any, row: Any, step: Any) -> Any:
    if found == len(problems):
        return found
    problems[found, 0] = kind
    problems[found, 1] = row
    problems[found, 2] = step
    return found + 1


@njit(cache=True, nogil=True)
def _follow(
    buffer: Any,
    start: Any,
    ready: Any,
    end: Any,
    prefetched: Any,
    evict: Any,
    access_step: Any,
    access_write: Any,
    access_bytes: Any,
    access_first: Any,
    buffer_size: Any,
    buffer_start: Any,
    buffer_input: Any,
    buffer_output: Any,
    excluded: Any,
    steps: int,
    problems: Any,
) -> Any:
    """Return `int64[found, 3]`: kind, residency and step. Residencies are sorted by (buffer, start), accesses by
    (buffer, step, reads first)."""
    found = 0
    row = 0
    while row < len(buffer):
        one = buffer[row]
        head = window = row  # the window that is open or comes next
        while row < len(buffer) and buffer[row] == one:
            row += 1
        if excluded[one]:
            continue
        first, last = access_first[one], access_first[one + 1]
        events = last - first
        born = np.int64(-1)  # the step whose access defines the buffer, wherever it is served
        if not buffer_input[one]:
            born = np.int64(access_step[first]) if events > 0 else np.int64(buffer_start[one])
            events = max(events, 1)
        valid = buffer_input[one]  # slow memory has a current copy
        opened = False
        written = False  # in fast memory, during this window
        for event in range(events + 1):
            step = np.int64(steps)
            whole = write = True
            if event < events and first + event < last:
                step = np.int64(access_step[first + event])
                write = access_write[first + event] or step == born
                # A partial write leaves the rest as stale as it was.
                whole = step == born or access_bytes[first + event] >= buffer_size[one]
            elif event < events:
                step = born
            while window < row:
                if opened and end[window] <= step:
                    if evict[window] >= 0:
                        if not written:
                            found = _note(problems, found, _NOTHING_TO_EVICT, window, evict[window])
                        valid = True
                    opened = False
                    window += 1
                elif not opened and start[window] <= step:
                    if prefetched[window] and not valid:
                        found = _note(problems, found, _PREFETCH_OF_NOTHING, window, start[window])
                    opened = True
                    written = False
                else:
                    break
            if event == events:
                break
            if opened and ready[window] <= step:
                if write:
                    valid = False
                    written = True
                    if evict[window] >= 0 and step >= evict[window]:
                        found = _note(problems, found, _WRITE_AFTER_EVICTION, window, step)
            elif write:
                valid = valid or whole
                if opened:
                    found = _note(problems, found, _WRITE_WHILE_COMING, window, step)
            elif not valid:
                found = _note(problems, found, _STALE_READ, max(head, window - 1), step)
        if buffer_output[one] and not valid:
            found = _note(problems, found, _STALE_OUTPUT, row - 1, steps)
    return problems[:found]


def _access_problems(program: Program, mapping: Mapping) -> Iterator[str]:
    expected = _served(program, mapping.buffer, mapping.offset, mapping.ready, mapping.end)
    for access in np.flatnonzero(expected != mapping.access_offset).tolist():
        step = int(program.access_step[access])
        kind = "write" if program.access_write[access] else "read"
        name = _shorten(program.buffer_name[program.access_buffer[access]])
        said, meant = (_place(int(offset)) for offset in (mapping.access_offset[access], expected[access]))
        where = f"the {kind} of buffer {name} at step {step}"
        yield f"access {access}, {where}, is served from {said}, but it lies in {meant}"


def _place(offset: int) -> str:
    return "slow memory" if offset == -1 else f"fast memory at {offset}"


def _title(program: Program, mapping: Mapping, row: int) -> str:
    buffer = int(mapping.buffer[row])
    return f"residency {row} of buffer {buffer} ({_shorten(program.buffer_name[buffer])})"


def _shorten(name: str) -> str:
    return name if len(name) <= 60 else name[:59] + "…"
