"""A scheduled HLO module -> `Program`: steps, accesses, buffers with their live ranges.

Sizes are those of the arrays, packed, without padding to a layout's tiles: XLA's CPU schedules have no tiles, and in
others padding belongs to the chip that the module was compiled for, not to the one that is simulated.
"""

from __future__ import annotations

import numpy as np

from accelsim.program import Program
from accelsim.readers.aliasing import Aliases
from accelsim.readers.copies import COPY_KEY, flatten_with_copies
from accelsim.readers.flatten import Flat
from accelsim.readers.mapping import strip_module
from accelsim.xla.schema import decode_module


def build_program(scheduled_proto: bytes) -> Program:
    """Build the program of a serialized `HloModuleProto` that has a schedule.

    A module that carries a mapping (memory spaces, copy-start and copy-done) gives the program without it.

    Raises:
        InputError: a schedule is missing or wrong, or something does not fit in 64 bits.
    """
    module = decode_module(scheduled_proto)
    strip_module(module)
    flat, aliases = flatten_with_copies(module)
    return columns(flat, aliases, Numbering(flat, aliases))


class Numbering:
    """Positions of values and groups in a program's columns; tokens and empty arrays have none."""

    def __init__(self, flat: Flat, aliases: Aliases) -> None:
        self.value: dict[int, int] = {}  # value of the flat module -> row
        self.buffer: dict[int, int] = {}  # group -> row
        for number, value in enumerate(flat.values):
            if value.size:
                self.value[number] = len(self.value)
                self.buffer.setdefault(aliases.group[number], len(self.buffer))


def columns(flat: Flat, aliases: Aliases, numbering: Numbering) -> Program:
    """Build the program whose rows `numbering` has given out."""
    total = len(flat.steps)
    regions = _regions(flat)
    access: list[tuple[int, int, int, int, bool, int]] = []
    for time, step in enumerate(flat.steps):
        for number, (operand, moved) in step.reads.items():
            moved = aliases.reads.get((time, number), moved)
            if moved:
                access.append((time, aliases.group[number], number, moved, False, operand))
        for number, moved in step.writes.items():
            moved = aliases.writes.get((time, number), moved)
            access.append((time, aliases.group[number], number, moved, True, -1))
    rows = len(numbering.buffer)
    name = [""] * rows
    size = [0] * rows
    start = [0] * rows
    end = [0] * rows
    given = [False] * rows
    returned = [False] * rows
    defined = [total + 1] * rows
    for number, value in enumerate(flat.values):
        if not value.size:
            continue
        row = numbering.buffer[aliases.group[number]]
        size[row] = max(size[row], value.size)
        given[row] = given[row] or value.given
        if value.time < defined[row]:
            defined[row], name[row] = value.time, value.name
    for group, row in numbering.buffer.items():
        low, high = aliases.live[group]
        returned[row] = group in aliases.outputs
        start[row] = 0 if given[row] else low
        end[row] = min(total, max(high, start[row] + 1))
    values = [flat.values[number] for number in numbering.value]
    value_live = [aliases.value_live[number] for number in numbering.value]
    where = [aliases.group[number] for number in numbering.value]
    return Program(
        name=flat.module.name,
        step_name=tuple([step.item.name for step in flat.steps]),
        step_opcode=tuple([step.item.opcode for step in flat.steps]),
        step_computation=tuple([step.computation.name for step in flat.steps]),
        step_flops=np.array(
            [flat.flops.instruction(step.computation.id, step.item.id) for step in flat.steps], np.int64
        ),
        step_repeat=np.array([step.repeat for step in flat.steps], np.int64),
        step_region=np.array(regions, np.int32),
        access_step=np.array([row[0] for row in access], np.int32),
        access_buffer=np.array([numbering.buffer[row[1]] for row in access], np.int32),
        access_value=np.array([numbering.value[row[2]] for row in access], np.int32),
        access_bytes=np.array([row[3] for row in access], np.int64),
        access_write=np.array([row[4] for row in access], np.bool_),
        access_operand=np.array([row[5] for row in access], np.int32),
        buffer_name=tuple(name),
        buffer_size=np.array(size, np.int64),
        buffer_start=np.array(start, np.int32),
        buffer_end=np.array(end, np.int32),
        buffer_input=np.array(given, np.bool_),
        buffer_output=np.array(returned, np.bool_),
        value_name=tuple([value.name for value in values]),
        value_buffer=np.array([numbering.buffer[group] for group in where], np.int32),
        value_start=np.array([low for low, _ in value_live], np.int32),
        value_end=np.array([min(total, max(high, low + 1)) for low, high in value_live], np.int32),
        notes=tuple(_notes(flat, aliases)),
    )


def _regions(flat: Flat) -> list[int]:
    """Number the outermost loops and conditionals that have steps, in order; -1 outside."""
    outermost: list[int] = []
    for number, span in enumerate(flat.spans):
        outermost.append(number if span.parent < 0 else outermost[span.parent])
    found: dict[int, int] = {}
    return [found.setdefault(outermost[step.span], len(found)) if step.span >= 0 else -1 for step in flat.steps]


def _notes(flat: Flat, aliases: Aliases) -> list[str]:
    def many(count: int, one: str, more: str) -> str:
        return f"1 {one}" if count == 1 else f"{count} {more}"

    notes = []
    if flat.uncounted_loops:
        notes.append(many(flat.uncounted_loops, "loop", "loops") + " of unknown trip count: counted as one iteration")
    if flat.conditionals:
        notes.append(many(flat.conditionals, "conditional", "conditionals") + ": every branch counts once")
    unknown = flat.flops.unknown
    if unknown:
        targets = sorted(unknown)
        listed = ", ".join(targets[:8]) + (f" and {len(targets) - 8} more" if len(targets) > 8 else "")
        calls = many(sum(unknown.values()), "custom call", "custom calls")
        notes.append(f"flops of {calls} unknown, counted as 0: {listed}")
    if aliases.unresolved:
        carried = many(len(aliases.unresolved), "value is", "values are")
        notes.append(f"{carried} carried without a copy that is needed: what lives at the same time shares a buffer")
    started = sum(step.item.opcode.endswith("-start") for step in flat.steps)
    if started:
        operations = many(started, "asynchronous operation counts", "asynchronous operations count")
        notes.append(f"{operations} at the start: its memory may be given to others before it is done")
    copies = sum(COPY_KEY in item.frontend_attributes.map for step in flat.steps for item in (step.item,))
    if copies:
        notes.append(many(copies, "copy was added", "copies were added") + " for what loops and branches carry")
    return notes
