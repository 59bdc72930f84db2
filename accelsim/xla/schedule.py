"""An order of execution for every computation of a module."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from accelsim.errors import CompilerError
from accelsim.xla.compiler import Compiler
from accelsim.xla.list_schedule import list_schedule
from accelsim.xla.schema import HloProto, decode_module, encode_module

_F32 = 11
_API_VERSION_ORIGINAL = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledModule:
    """A module whose every computation outside of fusions has a sequence in `HloModuleProto.schedule`."""

    proto: bytes  # serialized HloModuleProto
    source: str  # "input": came scheduled; "xla-cpu": XLA's compile for the CPU; "list": our list schedule
    notes: tuple[str, ...] = ()


def schedule(proto: bytes, *, compiler: Compiler) -> ScheduledModule:
    """Schedule a module: keep the order it came with, else ask XLA:CPU, else order it ourselves and say so.

    XLA:CPU also optimises: the instructions of its result are not those of the input.

    Raises:
        CompilerError: no compiler process was free (kind ``busy``).
    """
    module = decode_module(proto)
    if module.schedule.sequences:
        _complete(module)
        return ScheduledModule(proto=encode_module(module), source="input", notes=("The module came scheduled.",))
    try:
        scheduled = _ask_xla(proto, compiler=compiler)
    except CompilerError as error:
        if error.kind == "busy":
            raise
        reason = " ".join(error.message.strip().partition("\n")[0].split())[:400]
        for computation in _sequenced(module):
            module.schedule.sequences[computation.id].instruction_ids[:] = list_schedule(computation)
        return ScheduledModule(
            proto=encode_module(module),
            source="list",
            notes=(
                "XLA:CPU gave no schedule, so the order is Graphsmith's own memory-minimising list schedule "
                f"of the module as it was sent. XLA said: {reason}",
            ),
        )
    return ScheduledModule(
        proto=scheduled,
        source="xla-cpu",
        notes=("Optimised and scheduled by XLA:CPU; its fusions and names differ from the module that was sent.",),
    )


def _ask_xla(proto: bytes, *, compiler: Compiler) -> bytes:
    """Compile for the CPU up to code generation; return the scheduled module.

    A custom call without implementation, with side effects, makes the compile stop before it generates code: ten times
    faster, and modules with custom calls of other machines get a schedule too. It is removed from the result.
    """
    module = decode_module(proto)
    name = module.name
    module.name = "module"  # part of the dump's file name
    target = f"graphsmith-stop-{hashlib.sha256(proto).hexdigest()[:16]}"
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    stop = entry.instructions.add(
        name=target,
        opcode="custom-call",
        custom_call_target=target,
        custom_call_has_side_effect=True,
        custom_call_api_version=_API_VERSION_ORIGINAL,
        id=max(item.id for computation in module.computations for item in computation.instructions) + 1,
    )
    stop.shape.element_type = _F32
    stop.shape.layout.SetInParent()
    reply, dumps = compiler.call("compile_until_scheduled", module.SerializeToString())
    if not dumps:
        raise CompilerError(reply["message"] or "no schedule was written", kind="refused")
    wrapper = HloProto()
    wrapper.ParseFromString(dumps[0])
    result = wrapper.hlo_module
    result.name = name
    _remove(result, target=target)
    _complete(result)
    return encode_module(result)


def _remove(module: Any, *, target: str) -> None:
    """Take the stop op out of the module and its schedule."""
    for computation in module.computations:
        for number, item in enumerate(computation.instructions):
            if item.custom_call_target == target:
                gone = item.id
                del computation.instructions[number]
                module.schedule.sequences[computation.id].instruction_ids.remove(gone)
                for other in computation.instructions:
                    if gone in other.control_predecessor_ids:
                        other.control_predecessor_ids.remove(gone)
                return
    raise CompilerError("XLA dropped the stop op, so its schedule cannot be trusted", kind="refused")


def _sequenced(module: Any) -> list[Any]:
    """The computations that have a sequence: all but the bodies of fusions."""
    fused = {
        number
        for computation in module.computations
        for item in computation.instructions
        if item.opcode == "fusion"
        for number in item.called_computation_ids
    }
    return [computation for computation in module.computations if computation.id not in fused]


def _complete(module: Any) -> None:
    """Give computations without a sequence the order of the proto, which XLA writes operands first."""
    for computation in _sequenced(module):
        sequence = module.schedule.sequences[computation.id].instruction_ids
        if not sequence:
            sequence.extend(item.id for item in computation.instructions)
