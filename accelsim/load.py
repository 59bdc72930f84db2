"""From the bytes of a user's file to a program that can be simulated."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from accelsim.program import Program
from accelsim.readers.copies import insert_copies
from accelsim.readers.mapping import strip_module
from accelsim.readers.module import DEFAULT_LIMIT_BYTES, ParsedModule, parse
from accelsim.readers.program import build_program
from accelsim.xla import Compiler, ScheduledModule, schedule
from accelsim.xla.schema import decode_module, encode_module


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A module on its three floors: as it was sent, as it is scheduled, and as a program."""

    source: ParsedModule
    scheduled: ScheduledModule
    program: Program

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed or changed on the way, in order."""
        return tuple(dict.fromkeys((*self.source.notes, *self.scheduled.notes, *self.program.notes)))


def load(data: bytes, *, compiler: Compiler, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Loaded:
    """Parse, schedule and flatten a module in any form that `parse` reads.

    Raises:
        InputError: the module cannot be used.
        CompilerError: no compiler process was free (kind ``busy``).
    """
    source = parse(data, compiler=compiler, limit_bytes=limit_bytes)
    scheduled = _complete(schedule(source.proto, compiler=compiler))
    return Loaded(source=source, scheduled=scheduled, program=build_program(scheduled.proto))


def _complete(scheduled: ScheduledModule) -> ScheduledModule:
    """Take out a mapping that the module came with; add the copies that other schedules than XLA's may lack."""
    if scheduled.source == "xla-cpu":
        return scheduled
    module = decode_module(scheduled.proto)
    strip_module(module)
    insert_copies(module)
    return dataclasses.replace(scheduled, proto=encode_module(module))


def peak_bytes(program: Program) -> int:
    """The most bytes that are live during any step."""
    change = np.zeros(program.steps + 1, np.int64)
    np.add.at(change, program.buffer_start, program.buffer_size)
    np.subtract.at(change, np.minimum(program.buffer_end, program.steps), program.buffer_size)
    return int(np.cumsum(change[: program.steps]).max(initial=0))


def summarise(loaded: Loaded) -> dict[str, Any]:
    """What a module is, as a JSON object: names, counts, bytes, flops, and the notes."""
    program = loaded.program
    members = np.bincount(program.value_buffer, minlength=program.buffers)
    repeat = program.step_repeat.tolist()
    return {
        **loaded.source.summary,
        "schedule_source": loaded.scheduled.source,
        "steps": program.steps,
        "accesses": program.accesses,
        "buffers": program.buffers,
        "values": len(program.value_name),
        "alias_groups": int((members > 1).sum()),
        "input_buffers": int(program.buffer_input.sum()),
        "output_buffers": int(program.buffer_output.sum()),
        "buffer_bytes": sum(program.buffer_size.tolist()),
        "peak_bytes": peak_bytes(program),
        "flops": sum(flops * times for flops, times in zip(program.step_flops.tolist(), repeat, strict=True)),
        "bytes_accessed": sum(
            size * repeat[step]
            for size, step in zip(program.access_bytes.tolist(), program.access_step.tolist(), strict=True)
        ),
        "notes": list(loaded.notes),
    }
