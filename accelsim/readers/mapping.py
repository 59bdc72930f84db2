"""Read a mapping back from an annotated module, and take it out again.

What the annotations are is said in `accelsim.writers.hlo`, which makes them.
"""

from __future__ import annotations

import re
from typing import Any

from accelsim.errors import InputError
from accelsim.mapping import Mapping
from accelsim.program import Program
from accelsim.readers.flatten import flatten
from accelsim.xla.schema import TUPLE, decode_module

VERSION = "1"
MODULE_KEY = "graphsmith_mapping"  # on the module: format version
ROOT_KEY = "graphsmith_root"  # on the module: name of the entry's root before the mapping
ADDED_KEY = "graphsmith_added"  # on an instruction that is there for the mapping only: its kind
OPERANDS_KEY = "graphsmith_operands"  # "0:name,3:name": operands before the mapping
MOVED_KEY = "graphsmith_moved"  # place in the schedule before the mapping
RESIDENCY_KEY = "graphsmith_residency"  # "buffer=3 offset=512 end=20", joined by "; "
KEYS = (ADDED_KEY, OPERANDS_KEY, MOVED_KEY, RESIDENCY_KEY)

_RESIDENCY = re.compile(r"buffer=(\d+) offset=(\d+)(?: end=(\d+))?")


def strip(annotated_proto: bytes) -> bytes:
    """Return the module without its mapping: no memory spaces, copy-start or copy-done, the operands that it had.

    A module that was mapped by XLA itself loses its memory spaces and asynchronous copies in the same way.
    """
    module = decode_module(annotated_proto)
    strip_module(module)
    stripped: bytes = module.SerializeToString(deterministic=True)
    return stripped


def strip_module(module: Any) -> None:
    """Take the mapping out of a decoded module, in place."""
    attributes = module.frontend_attributes.map
    annotated = MODULE_KEY in attributes
    if annotated:
        _check_version(attributes[MODULE_KEY])
        _take_out(module, root=attributes.get(ROOT_KEY))
        for key in (MODULE_KEY, ROOT_KEY):
            if key in attributes:
                del attributes[key]
        if not attributes:
            module.ClearField("frontend_attributes")
    else:
        _join_copies(module)
    for computation in module.computations:
        if computation.HasField("program_shape"):
            for shape in (*computation.program_shape.parameters, computation.program_shape.result):
                _into_slow_memory(shape)
        for item in computation.instructions:
            _into_slow_memory(item.shape)


def _check_version(version: str) -> None:
    if version != VERSION:
        raise InputError(f"the module carries a mapping of version {version}, not {VERSION}", code="mapping-version")


def _into_slow_memory(shape: Any) -> None:
    stack = [shape]
    while stack:
        item = stack.pop()
        if item.element_type == TUPLE:
            stack.extend(item.tuple_shapes)
        elif item.HasField("layout") and item.layout.memory_space:
            item.layout.ClearField("memory_space")


def _wrapped(module: Any) -> set[int]:
    """The computations that asynchronous operations wrap.

    XLA prints one as its only instruction, with the attributes of the start; reading that, it gives them to both.
    """
    return {
        identity
        for computation in module.computations
        for item in computation.instructions
        if item.opcode == "async-start"
        for identity in item.called_computation_ids
    }


def _drop_keys(item: Any) -> None:
    attributes = item.frontend_attributes.map
    for key in KEYS:
        if key in attributes:
            del attributes[key]
    if not attributes:
        item.ClearField("frontend_attributes")


def _take_out(module: Any, *, root: str | None) -> None:
    sequences = module.schedule.sequences
    wrapped = _wrapped(module)
    for computation in module.computations:
        if computation.id in wrapped:
            for item in computation.instructions:
                _drop_keys(item)
            continue
        names = {item.name: item.id for item in computation.instructions}
        if root is not None and computation.id == module.entry_computation_id:
            if root not in names:
                raise InputError(f"the annotated module has lost its root {root}", code="mapping-syntax")
            computation.root_id = names[root]
        added: set[int] = set()
        moved: list[tuple[int, int]] = []
        for item in computation.instructions:
            attributes = item.frontend_attributes.map
            if not any(key in attributes for key in KEYS):
                continue
            if ADDED_KEY in attributes:
                added.add(item.id)
                continue
            for change in filter(None, attributes.get(OPERANDS_KEY, "").split(",")):
                number, _, name = change.partition(":")
                if not number.isdecimal() or int(number) >= len(item.operand_ids) or name not in names:
                    raise InputError(f"{item.name}: cannot restore operand {change}", code="mapping-syntax")
                item.operand_ids[int(number)] = names[name]
            if MOVED_KEY in attributes:
                moved.append((_number(attributes[MOVED_KEY], item), item.id))
            _drop_keys(item)
        if added:
            _remove(computation, added)
        if computation.id in sequences and (added or moved):
            away = added | {identity for _, identity in moved}
            order = [identity for identity in sequences[computation.id].instruction_ids if identity not in away]
            for place, identity in sorted(moved):
                order.insert(place, identity)
            del sequences[computation.id].instruction_ids[:]
            sequences[computation.id].instruction_ids.extend(order)


def _number(text: str, item: Any) -> int:
    if not text.isdecimal():
        raise InputError(f"{item.name}: {text!r} is not a place in the schedule", code="mapping-syntax")
    return int(text)


def _remove(computation: Any, identities: set[int]) -> None:
    kept = [item for item in computation.instructions if item.id not in identities]
    for item in kept:
        if any(operand in identities for operand in item.operand_ids):
            raise InputError(f"{item.name} uses a copy whose original operand is not recorded", code="mapping-syntax")
        if any(before in identities for before in item.control_predecessor_ids):
            rest = [before for before in item.control_predecessor_ids if before not in identities]
            del item.control_predecessor_ids[:]
            item.control_predecessor_ids.extend(rest)
    copies = [type(item).FromString(item.SerializeToString()) for item in kept]
    del computation.instructions[:]
    computation.instructions.extend(copies)


def _join_copies(module: Any) -> None:
    """Let the users of each copy-done use what its copy-start copies, and remove both."""
    sequences = module.schedule.sequences
    for computation in module.computations:
        items = {item.id: item for item in computation.instructions}
        source: dict[int, int] = {}
        removed: set[int] = set()
        for item in computation.instructions:  # operands come first
            if item.opcode != "copy-done":
                continue
            start = items.get(item.operand_ids[0]) if item.operand_ids else None
            if start is not None and start.opcode == "copy-start" and start.operand_ids:
                origin = start.operand_ids[0]
                source[item.id] = source.get(origin, origin)
                removed |= {item.id, start.id}
        # A copy-start that is used in another way stays, with all that hangs on it.
        for item in computation.instructions:
            if item.id not in removed:
                removed -= {operand for operand in item.operand_ids if operand not in source}
        source = {done: origin for done, origin in source.items() if items[done].operand_ids[0] in removed}
        removed = {identity for identity in removed if identity in source or items[identity].opcode == "copy-start"}
        if not source:
            continue
        for item in computation.instructions:
            for number, operand in enumerate(item.operand_ids):
                if item.id not in removed and operand in source:
                    item.operand_ids[number] = source[operand]
        computation.root_id = source.get(computation.root_id, computation.root_id)
        _remove(computation, removed)
        if computation.id in sequences:
            order = [identity for identity in sequences[computation.id].instruction_ids if identity not in removed]
            del sequences[computation.id].instruction_ids[:]
            sequences[computation.id].instruction_ids.extend(order)


def read_mapping(annotated_proto: bytes, *, program: Program) -> Mapping:
    """Read the mapping that `accelsim.writers.hlo.annotate` put into a module.

    Args:
        program: the program of the module; that of the annotated module itself is the same. Whether the mapping is
            legal is for `accelsim.mapping.check` to say.

    Raises:
        InputError: the module carries no mapping, or that of another program.
    """
    module = decode_module(annotated_proto)
    attributes = module.frontend_attributes.map
    if MODULE_KEY not in attributes:
        raise InputError("the module carries no mapping of Graphsmith", code="mapping-missing")
    _check_version(attributes[MODULE_KEY])
    return _Rows(module, program).mapping()


class _Rows:
    """Residencies as they are found, walking through the module."""

    def __init__(self, module: Any, program: Program) -> None:
        self.program = program
        self.rows: list[dict[str, int]] = []
        plain = decode_module(strip(module.SerializeToString()))
        flat = flatten(plain)
        # Not by name: where calls were inlined, a name that came twice has a number.
        if tuple(step.item.opcode for step in flat.steps) != program.step_opcode:
            raise InputError("the module carries the mapping of another program", code="mapping-program")
        entry = next(item for item in module.computations if item.id == module.entry_computation_id)
        times = flat.frames[0].times
        items = {item.id: item for item in entry.instructions}
        order = list(module.schedule.sequences[entry.id].instruction_ids)
        when: dict[int, int] = {}
        time = len(flat.steps)
        for identity in reversed(order):
            attributes = items[identity].frontend_attributes.map
            if identity in times and MOVED_KEY not in attributes:
                time = times[identity]
            when[identity] = time
        self.copies(order, items, when)
        wrapped = _wrapped(module)
        for computation in module.computations:
            if computation.id in wrapped:
                continue
            for item in computation.instructions:
                text = item.frontend_attributes.map.get(RESIDENCY_KEY)
                if text is not None and ADDED_KEY not in item.frontend_attributes.map:
                    for part in text.split("; "):
                        buffer, offset, end = self.parse(part, item)
                        start = int(program.buffer_start[buffer])
                        self.add(buffer, offset, start, start, end, prefetched=0)
        self.evict(order, items, when)

    def parse(self, text: str, item: Any) -> tuple[int, int, int]:
        found = _RESIDENCY.fullmatch(text)
        if found is None or int(found[1]) >= self.program.buffers or int(found[2]) >= 2**63:
            raise InputError(f"{item.name}: {text!r} is not a residency", code="mapping-syntax")
        end = min(int(found[3]), 2**31 - 1) if found[3] is not None else -1
        return int(found[1]), int(found[2]), end

    def add(self, buffer: int, offset: int, start: int, ready: int, end: int, *, prefetched: int) -> None:
        self.rows.append(
            {
                "buffer": buffer,
                "offset": offset,
                "start": start,
                "ready": ready,
                "end": end,
                "prefetched": prefetched,
                "evict": -1,
            }
        )

    def dones(self, order: list[int], items: dict[int, Any]) -> dict[int, int]:
        return {items[i].operand_ids[0]: i for i in order if items[i].opcode == "copy-done"}

    def copies(self, order: list[int], items: dict[int, Any], when: dict[int, int]) -> None:
        dones = self.dones(order, items)
        for identity in order:
            item = items[identity]
            attributes = item.frontend_attributes.map
            if item.opcode == "copy-start" and attributes.get(ADDED_KEY) == "prefetch":
                buffer, offset, end = self.parse(attributes.get(RESIDENCY_KEY, ""), item)
                if identity not in dones:
                    raise InputError(f"{item.name} has no copy-done", code="mapping-syntax")
                self.add(buffer, offset, when[identity], when[dones[identity]], end, prefetched=1)

    def evict(self, order: list[int], items: dict[int, Any], when: dict[int, int]) -> None:
        dones = self.dones(order, items)
        for identity in order:
            item = items[identity]
            attributes = item.frontend_attributes.map
            if item.opcode != "copy-start" or attributes.get(ADDED_KEY) != "evict":
                continue
            buffer, _, _ = self.parse(attributes.get(RESIDENCY_KEY, ""), item)
            issued = when[identity]
            open_rows = [row for row in self.rows if row["buffer"] == buffer and row["ready"] < issued]
            if not open_rows or identity not in dones:
                raise InputError(f"{item.name} evicts a buffer that is not in fast memory", code="mapping-syntax")
            row = max(open_rows, key=lambda row: row["ready"])
            row["evict"], row["end"] = issued, when[dones[identity]]

    def mapping(self) -> Mapping:
        for row in self.rows:
            if row["end"] < 0:
                raise InputError(f"a residency of buffer {row['buffer']} has no end", code="mapping-syntax")
        names = ("buffer", "offset", "start", "ready", "end", "prefetched", "evict")
        return Mapping.from_residencies(self.program, **{name: [row[name] for row in self.rows] for name in names})
