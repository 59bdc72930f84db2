"""A module in which every computation with control flow is entered from one place.

XLA places memory in such modules only: it inlines calls and clones shared loop bodies first, and so do we.
"""

from __future__ import annotations

from typing import Any

from accelsim.errors import InputError
from accelsim.readers.flatten import MOST_POSITIONS

_ENTERED = frozenset({"while", "conditional"})
_LOCAL = 2**32  # XLA numbers instructions: computation id x 2^32 + a local number


def needs_inlining(module: Any) -> bool:
    """Whether a computation is called, or is entered from two places."""
    entered: set[int] = set()
    for computation in module.computations:
        for item in computation.instructions:
            if item.opcode == "call":
                return True
            if item.opcode in _ENTERED:
                for identity in item.called_computation_ids:
                    if identity in entered:
                        return True
                    entered.add(identity)
    return False


def inline_calls(module: Any) -> Any:
    """Return the module without calls and with a clone of each loop body or branch that is shared.

    Steps, their order and their names stay as they are, but a name that comes twice gets a number.
    """
    return _Inliner(module).run()


class _Inliner:
    def __init__(self, module: Any) -> None:
        self.old = module
        self.computations = {item.id: item for item in module.computations}
        self.sequences = module.schedule.sequences
        self.new = type(module)()
        self.new.CopyFrom(module)
        del self.new.computations[:]
        self.new.schedule.sequences.clear()
        self.next_id = 1
        self.plain: dict[int, int] = {}  # fusions, reducers and other leaves: old id -> new id
        self.names: set[str] = set()
        self.computation_names: set[str] = set()
        self.copied = 0

    def run(self) -> Any:
        entered = self._entered()
        for computation in self.old.computations:
            if computation.id not in entered:
                self._copy_plain(computation)
        self.new.entry_computation_id = self._copy_entered(self.old.entry_computation_id)
        return self.new

    def _entered(self) -> set[int]:
        found: set[int] = set()
        waiting = [self.old.entry_computation_id]
        while waiting:
            identity = waiting.pop()
            if identity in found:
                continue
            found.add(identity)
            for item in self.computations[identity].instructions:
                if item.opcode in _ENTERED or item.opcode == "call":
                    waiting.extend(item.called_computation_ids)
        return found

    def _unique(self, name: str, taken: set[str]) -> str:
        number, found = 1, name
        while found in taken:
            found = f"{name}.{number}"
            number += 1
        taken.add(found)
        return found

    def _start(self, computation: Any) -> Any:
        made = self.new.computations.add()
        made.CopyFrom(computation)
        made.id = self.next_id
        made.name = self._unique(computation.name, self.computation_names)
        self.next_id += 1
        return made

    def _copy_plain(self, computation: Any) -> None:
        made = self._start(computation)
        self.plain[computation.id] = made.id
        ids = {item.id: made.id * _LOCAL + number for number, item in enumerate(computation.instructions)}
        for item in made.instructions:
            item.id = ids[item.id]
            _renumber(item, ids, self.plain)
        made.root_id = ids[computation.root_id]
        if computation.id in self.sequences:
            order = [ids[identity] for identity in self.sequences[computation.id].instruction_ids]
            self.new.schedule.sequences[made.id].instruction_ids.extend(order)

    def _copy_entered(self, identity: int) -> int:
        """Copy a computation with all that it calls in it, callees first; return its new id."""
        # (computation, ids of its instructions, items made so far); a frame a loop body or branch that is open.
        outer = _Open(self.computations[identity], None)
        stack = [outer]
        result = -1
        while stack:
            frame = stack[-1]
            if frame.todo:
                item, ids, frame_ids = frame.todo.pop()
                if item is None:  # the end of an inlined callee: its call stands for its root
                    call, caller_ids, root = frame_ids
                    caller_ids[call] = ids[root]
                    continue
                self.copied += 1
                if self.copied > MOST_POSITIONS:
                    raise InputError(
                        f"more than {MOST_POSITIONS} instructions once all calls are in line",
                        code="too-many-instructions",
                    )
                if item.opcode == "call":
                    callee = self.computations[item.called_computation_ids[0]]
                    inner: dict[int, int] = {}
                    parameters = {i.parameter_number: i.id for i in callee.instructions if i.opcode == "parameter"}
                    for number, operand in enumerate(item.operand_ids):
                        inner[parameters[number]] = ids[operand]
                    frame.todo.append((None, inner, (item.id, ids, callee.root_id)))
                    frame.todo.extend(self._work(callee, inner, skip=set(parameters.values())))
                    continue
                pending = frame.entered.pop(id(item), None) if item.opcode in _ENTERED else []
                if item.opcode in _ENTERED and len(pending or ()) < len(item.called_computation_ids):
                    done = pending or []
                    frame.entered[id(item)] = done
                    frame.todo.append((item, ids, frame_ids))
                    self.copied -= 1
                    stack.append(_Open(self.computations[item.called_computation_ids[len(done)]], done))
                    continue
                made = type(item)()
                made.CopyFrom(item)
                local = len(frame.made)
                ids[item.id] = local
                made.id = local
                del made.operand_ids[:]
                made.operand_ids.extend(ids[operand] for operand in item.operand_ids)
                before = [ids[identity] for identity in item.control_predecessor_ids if identity in ids]
                del made.control_predecessor_ids[:]
                made.control_predecessor_ids.extend(before)
                called = pending if item.opcode in _ENTERED else [self.plain[i] for i in item.called_computation_ids]
                del made.called_computation_ids[:]
                made.called_computation_ids.extend(called or ())
                made.name = self._unique(item.name, self.names)
                frame.made.append(made)
                continue
            if not frame.begun:
                frame.begun = True
                frame.todo = self._work(frame.computation, frame.ids, skip=set())
                continue
            stack.pop()
            result = self._finish(frame)
            if frame.report is not None:
                frame.report.append(result)
        return result

    def _work(self, computation: Any, ids: dict[int, int], *, skip: set[int]) -> list[tuple[Any, Any, Any]]:
        items = {item.id: item for item in computation.instructions}
        if computation.id not in self.sequences:
            raise InputError(f"computation {computation.name} has no schedule", code="schedule-missing")
        order = self.sequences[computation.id].instruction_ids
        return [(items[identity], ids, None) for identity in reversed(order) if identity not in skip]

    def _finish(self, frame: _Open) -> int:
        made = self.new.computations.add()
        made.CopyFrom(frame.computation)
        del made.instructions[:]
        made.id = self.next_id
        self.next_id += 1
        made.name = self._unique(frame.computation.name, self.computation_names)
        base = made.id * _LOCAL
        for item in frame.made:
            item.id += base
            for column in (item.operand_ids, item.control_predecessor_ids):
                shifted = [identity + base for identity in column]
                del column[:]
                column.extend(shifted)
        made.instructions.extend(frame.made)
        made.root_id = base + frame.ids[frame.computation.root_id]
        self.new.schedule.sequences[made.id].instruction_ids.extend(item.id for item in frame.made)
        return int(made.id)


class _Open:
    """A loop body, branch or entry that is being copied."""

    def __init__(self, computation: Any, report: list[int] | None) -> None:
        self.computation = computation
        self.report = report
        self.ids: dict[int, int] = {}  # old id -> place in `made`
        self.made: list[Any] = []
        self.todo: list[tuple[Any, Any, Any]] = []
        self.entered: dict[int, list[int]] = {}
        self.begun = False


def _renumber(item: Any, ids: dict[int, int], computations: dict[int, int]) -> None:
    for column in (item.operand_ids, item.control_predecessor_ids):
        renamed = [ids[identity] for identity in column]
        del column[:]
        column.extend(renamed)
    called = [computations[identity] for identity in item.called_computation_ids]
    del item.called_computation_ids[:]
    item.called_computation_ids.extend(called)
