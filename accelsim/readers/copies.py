"""Copies that keep a loop's or branch's values apart, in modules that XLA's copy insertion has not seen.

XLA schedules a module only after copy insertion, so its own schedules need nothing here. A module that was scheduled
otherwise may carry one value into two elements of a loop, swap two elements, or overwrite a constant or a parameter.
"""

from __future__ import annotations

from typing import Any

from accelsim.readers.aliasing import Aliases, find_aliases
from accelsim.readers.flatten import Flat, Site, flatten
from accelsim.xla.schema import TUPLE, HloInstructionProto
from accelsim.xla.shape import leaves

COPY_KEY = "graphsmith_copy"  # on a copy that was added here; it belongs to the program, so stripping keeps it


def insert_copies(module: Any) -> int:
    """Add the copies that a scheduled module lacks, in place; return how many."""
    return _resolve(module)[2]


def flatten_with_copies(module: Any) -> tuple[Flat, Aliases]:
    """Put a scheduled module in line and find its aliases, after the copies that it lacks were added in place."""
    flat, aliases, _ = _resolve(module)
    return flat, aliases


def _resolve(module: Any) -> tuple[Flat, Aliases, int]:
    """In each round, what cannot share storage gets a copy where it enters the loop or leaves the body; where that is
    not enough (elements that change places), the body copies what it is given as well."""
    done: set[tuple[Site, str]] = set()
    added = 0
    while True:
        flat = flatten(module)
        aliases = find_aliases(flat)
        sites = _next_sites(aliases, done)
        if not sites:
            return flat, find_aliases(flat, force=True) if aliases.unresolved else aliases, added
        editors = {computation.id: _Editor(module, computation) for computation in module.computations}
        for (computation, instruction, kind), chosen in sorted(sites.items()):
            editors[computation].copy(instruction, kind, chosen)
            added += len(chosen)
        for editor in editors.values():
            editor.finish()


def _next_sites(aliases: Aliases, done: set[tuple[Site, str]]) -> dict[tuple[int, int, str], set[int]]:
    """Leaves to copy next, by (computation, loop or -1 for the root, what of it); noted in `done`."""
    sites: dict[tuple[int, int, str], set[int]] = {}
    for merge in aliases.unresolved:
        choices = [(merge.site, "value")]
        if merge.source is not None:
            choices.insert(0, (merge.source, "value"))
        if merge.kind in ("back", "branch"):
            choices.append((merge.site, "parameter"))
        for site, kind in choices:
            if (site, kind) not in done:
                done.add((site, kind))
                sites.setdefault((site.computation, site.instruction, kind), set()).add(site.leaf)
                break
    return sites


class _Editor:
    """Adds instructions to a computation and its schedule."""

    def __init__(self, module: Any, computation: Any) -> None:
        self.module = module
        self.computation = computation
        self.items: dict[int, Any] = {item.id: item for item in computation.instructions}
        self.order: list[int] = []
        if computation.id in module.schedule.sequences:
            self.order = list(module.schedule.sequences[computation.id].instruction_ids)
        self.next_id = max(self.items) + 1
        self.changed = False

    def copy(self, instruction: int, kind: str, chosen: set[int]) -> None:
        """Copy some leaves of a loop's operand, of the root, or of the parameter."""
        if kind == "parameter":
            source = next(item.id for item in self.items.values() if item.opcode == "parameter")
            users = [item for item in self.items.values() if source in item.operand_ids]
            made = self._copied(source, chosen, at=self.order.index(source) + 1)
            for user in users:
                for number, operand in enumerate(user.operand_ids):
                    if operand == source:
                        user.operand_ids[number] = made
            if self.computation.root_id == source:
                self.computation.root_id = made
        elif instruction >= 0:
            loop = self.items[instruction]
            loop.operand_ids[0] = self._copied(loop.operand_ids[0], chosen, at=self.order.index(instruction))
        else:
            self.computation.root_id = self._copied(self.computation.root_id, chosen, at=len(self.order))

    def _copied(self, source: int, chosen: set[int], *, at: int) -> int:
        shape = self.items[source].shape
        new: list[int] = []
        if shape.element_type != TUPLE:
            result = self._add("copy", shape, [source], new)
        else:
            arrays = []
            for leaf, (index, _) in enumerate(leaves(shape)):
                current = self.items[source]
                for number in index:
                    current = self._add("get-tuple-element", current.shape.tuple_shapes[number], [current.id], new)
                    current.tuple_index = number
                arrays.append(self._add("copy", current.shape, [current.id], new) if leaf in chosen else current)
            result = self._tuple(shape, arrays, new)
        self.order[at:at] = new
        return int(result.id)

    def _tuple(self, shape: Any, arrays: list[Any], new: list[int]) -> Any:
        remaining = iter(arrays)
        stack: list[tuple[Any, list[Any], list[int]]] = [(shape, list(reversed(shape.tuple_shapes)), [])]
        while True:
            whole, todo, made = stack[-1]
            if todo:
                element = todo.pop()
                if element.element_type == TUPLE:
                    stack.append((element, list(reversed(element.tuple_shapes)), []))
                else:
                    made.append(next(remaining).id)
                continue
            stack.pop()
            item = self._add("tuple", whole, made, new)
            if not stack:
                return item
            stack[-1][2].append(item.id)

    def _add(self, opcode: str, shape: Any, operands: list[int], new: list[int]) -> Any:
        self.changed = True
        item = HloInstructionProto(opcode=opcode)
        item.shape.CopyFrom(shape)
        item.operand_ids.extend(operands)
        item.id = self.next_id
        self.next_id += 1
        item.name = f"{opcode}.{self.computation.name}.graphsmith.{item.id & 0xFFFFFFFF}"
        if opcode == "copy":
            item.frontend_attributes.map[COPY_KEY] = "carried"
        self.items[item.id] = item
        new.append(item.id)
        return item

    def finish(self) -> None:
        """Write the instructions back, operands before their users."""
        if not self.changed:
            return
        items = []
        for identity in self.order:
            copy = HloInstructionProto()
            copy.CopyFrom(self.items[identity])
            items.append(copy)
        del self.computation.instructions[:]
        self.computation.instructions.extend(items)
        sequence = self.module.schedule.sequences[self.computation.id].instruction_ids
        del sequence[:]
        sequence.extend(self.order)
