"""Write a mapping into the module that it belongs to.

What is written, all of it in places that XLA's parser keeps:

- The layout of every value that lies in fast memory names the device's memory space, printed ``S(n)``: results of
  steps, what forwards them, and what a loop or branch carries through.
- A prefetch is a ``copy-start`` at its issue point in the schedule and a ``copy-done`` at its wait point, an eviction
  likewise. Users read the copy-done. The copy-start's result is ``(destination, source, u32[])``.
- HLO layouts have no offsets. They stand in ``frontend_attributes`` of the instruction that fills the bytes:
  ``graphsmith_residency="buffer=3 offset=512 end=20"``, several joined by ``"; "``. ``buffer`` is a row of the
  program, ``end`` the step before which the bytes are free again (an eviction's copy-done says that itself).
- What the mapping changed is recorded, so that `accelsim.readers.mapping.strip` can take it back:
  ``graphsmith_added`` on every instruction that was added (copies, and the bitcast, get-tuple-element and tuple
  that lead to them), ``graphsmith_operands`` on users that were rewired, ``graphsmith_moved`` on parameters and
  constants that moved forward because a copy needs them, ``graphsmith_root`` on the module.

A constant inside a loop or branch is in fast memory where its own layout says so; its prefetch, outside, is a copy of
a second constant, because nothing outside can be named inside. Calls are inlined, and computations that two loops
share are cloned, as XLA does before it places memory. Entry parameters and results stay in slow memory.
"""

from __future__ import annotations

from typing import Any

from accelsim.device import Device
from accelsim.errors import InputError
from accelsim.mapping import Mapping, check
from accelsim.program import Program
from accelsim.readers.aliasing import Aliases
from accelsim.readers.copies import flatten_with_copies
from accelsim.readers.flatten import Flat, Frame
from accelsim.readers.inline import inline_calls, needs_inlining
from accelsim.readers.mapping import (
    ADDED_KEY,
    MODULE_KEY,
    MOVED_KEY,
    OPERANDS_KEY,
    RESIDENCY_KEY,
    ROOT_KEY,
    VERSION,
    strip_module,
)
from accelsim.readers.program import Numbering, columns
from accelsim.xla.schema import TUPLE, HloInstructionProto, ShapeProto, decode_module
from accelsim.xla.shape import leaves

_U32 = 8
_SLOW = -1


def annotate(scheduled_proto: bytes, *, program: Program, device: Device, mapping: Mapping) -> bytes:
    """Return the serialized module with a legal mapping in it.

    Args:
        scheduled_proto: the module that the program was built from.

    Raises:
        InputError: the mapping is illegal, or the module is not that of the program.
    """
    check(program, device, mapping)
    module = decode_module(scheduled_proto)
    strip_module(module)
    flat, aliases = flatten_with_copies(module)
    if needs_inlining(module):
        module = inline_calls(module)
        flat, aliases = flatten_with_copies(module)
    _Annotator(flat, aliases, program, device, mapping).run()
    annotated: bytes = module.SerializeToString(deterministic=True)
    return annotated


class _Annotator:
    """Walks through the entry computation and keeps, for each buffer, where its bytes can be read.

    A *handle* is a position of the entry computation: (instruction, leaf).
    """

    def __init__(self, flat: Flat, aliases: Aliases, program: Program, device: Device, mapping: Mapping) -> None:
        self.flat = flat
        module = self.module = flat.module
        self.program = program
        self.mapping = mapping
        self.space = device.memory_space
        numbering = Numbering(flat, aliases)
        made = columns(flat, aliases, numbering)
        same = made.step_opcode == program.step_opcode and made.buffer_size.tolist() == program.buffer_size.tolist()
        if not same or made.access_buffer.tolist() != program.access_buffer.tolist():
            raise InputError("the mapping belongs to another module", code="mapping-program")
        self.buffer = {value: numbering.buffer[aliases.group[value]] for value in numbering.value}
        self.residencies: dict[int, list[int]] = {}
        for row, buffer in enumerate(mapping.buffer.tolist()):
            self.residencies.setdefault(buffer, []).append(row)
        self.entry: Frame = self.flat.frames[0]
        self.items = {item.id: item for item in self.entry.computation.instructions}
        self.order: list[int] = []  # the entry's new schedule
        self.front: list[int] = []  # parameters and constants that a copy needs early, and added constants
        self.last_id = max(self.items)
        self.names = {item.name for computation in module.computations for item in computation.instructions}
        self.added: dict[int, Any] = {}
        self.place: dict[int, int] = {}  # value -> residency that holds it where it is defined, -1: slow memory
        self.fast: dict[int, tuple[int, int]] = {}  # buffer -> handle
        self.slow: dict[int, tuple[int, int]] = {}
        self.open: dict[tuple[int, str], int] = {}  # (residency, kind) -> copy-start
        self.cache: dict[tuple[int, int, bytes], int] = {}  # handle and shape -> array instruction
        self.filled: dict[int, list[str]] = {}  # instruction -> residencies that it begins
        self.events = self._events()

    # What is where

    def at(self, buffer: int, time: int) -> int:
        """Residency that serves a buffer at a step, -1 for slow memory."""
        for row in self.residencies.get(buffer, ()):
            if self.mapping.ready[row] <= time < self.mapping.end[row]:
                return row
        return _SLOW

    def _events(self) -> dict[int, list[tuple[int, str, int]]]:
        """Copies by boundary, in queue order: (0, evict), (1, prefetch) are issues, (2, …) are waits."""
        events: dict[int, list[tuple[int, str, int]]] = {}
        mapping = self.mapping
        for row in range(mapping.residencies):
            if mapping.evict[row] >= 0:
                events.setdefault(int(mapping.evict[row]), []).append((0, "evict", row))
                events.setdefault(int(mapping.end[row]), []).append((2, "evict", row))
            if mapping.prefetched[row]:
                events.setdefault(int(mapping.start[row]), []).append((1, "prefetch", row))
                events.setdefault(int(mapping.ready[row]), []).append((2, "prefetch", row))
        for found in events.values():
            found.sort(key=lambda event: (event[0], int(mapping.buffer[event[2]])))
        return events

    # The walk

    def run(self) -> None:
        flat, entry = self.flat, self.entry
        if not self.mapping.residencies:
            self._finish()
            return
        self._begin()
        spans = [number for number, span in enumerate(flat.spans) if span.parent < 0]
        done = -1
        for identity in entry.order:
            item = self.items[identity]
            time = entry.times[identity]
            # What a boundary copies may be what a done in front of the same step brings.
            while done < time - (item.opcode.endswith("-done") and item.opcode != "send-done"):
                done += 1
                self._boundary(done)
            if item.opcode in ("parameter", "constant"):
                self.order.append(identity)
                continue
            if item.opcode in ("while", "conditional"):
                span = flat.spans[spans.pop(0)]
                first = span.start if span.start < span.end else time
                self._rewire(item, first)
                self.order.append(identity)
                self._define(item, first)
                continue
            step = flat.steps[time] if time < len(flat.steps) else None
            if step is not None and step.item.id == identity and step.computation.id == entry.computation.id:
                self._rewire(item, time)
                self.order.append(identity)
                self._define(item, time)
            else:
                self.order.append(identity)
                self._paint(item, [self.place.get(value, _SLOW) for value in entry.places[identity]])
                if item.opcode.endswith("-done"):
                    self._hand_over(item)
        while done < len(flat.steps):
            done += 1
            self._boundary(done)
        self._return()
        for frame in flat.frames:
            if frame.span >= 0:
                self._paint_region(frame)
        self._finish()

    def _begin(self) -> None:
        """Note where inputs lie; parameters and constants that are copied early move to the front of the schedule."""
        for identity in self.entry.order:
            item = self.items[identity]
            if item.opcode in ("parameter", "constant"):
                for leaf, value in enumerate(self.entry.places[identity]):
                    if value in self.buffer:
                        self.slow[self.buffer[value]] = (identity, leaf)
                        self.place[value] = _SLOW
        early = set()
        for row in range(self.mapping.residencies):
            handle = self.slow.get(int(self.mapping.buffer[row]))
            if self.mapping.prefetched[row] and handle is not None:
                early.add(handle[0])
        places = {identity: number for number, identity in enumerate(self.entry.order)}
        for identity in sorted(early, key=lambda identity: places[identity]):
            # The front keeps its order, so only what stands behind something else has moved.
            self.front.append(identity)
            if places[identity] != len(self.front) - 1:
                self.items[identity].frontend_attributes.map[MOVED_KEY] = str(places[identity])
        for frame in self.flat.frames:
            if frame.span < 0:
                continue
            for item in frame.computation.instructions:
                if item.opcode == "constant":
                    self._copy_constant(frame, item)

    def _copy_constant(self, frame: Frame, item: Any) -> None:
        """Give a prefetch something to copy outside the loop or branch that holds the constant."""
        for leaf, value in enumerate(frame.places[item.id]):
            buffer = self.buffer.get(value)
            rows = self.residencies.get(buffer, ()) if buffer is not None else ()
            if buffer is None or not any(self.mapping.prefetched[row] for row in rows):
                continue
            copy = self._add("constant", item.shape, (), kind="constant", place=self.front)
            copy.literal.CopyFrom(item.literal)
            self.slow[buffer] = (copy.id, leaf)

    def _boundary(self, time: int) -> None:
        events = self.events.get(time, ())
        landing = {int(self.mapping.buffer[row]) for order, kind, row in events if order == 2 and kind == "evict"}
        late = []
        for order, kind, row in events:
            if kind == "prefetch" and int(self.mapping.buffer[row]) in landing:
                late.append((order, kind, row))  # reads what an eviction brings at this very boundary
            else:
                self._copy(order, kind, row)
        for order, kind, row in late:
            self._copy(order, kind, row)

    def _copy(self, order: int, kind: str, row: int) -> None:
        buffer = int(self.mapping.buffer[row])
        if order == 2:
            start = self.added[self.open.pop((row, kind))]
            done = self._add("copy-done", start.shape.tuple_shapes[0], (start.id,), kind=kind)
            (self.fast if kind == "prefetch" else self.slow)[buffer] = (done.id, 0)
            return
        handles = self.slow if kind == "prefetch" else self.fast
        source = self._array(handles[buffer])
        shape = ShapeProto(element_type=TUPLE)
        for space in (self.space if kind == "prefetch" else 0, 0 if kind == "prefetch" else self.space):
            _set_space(shape.tuple_shapes.add(), self._item(source).shape, space)
        context = shape.tuple_shapes.add(element_type=_U32)
        context.layout.SetInParent()
        start = self._add("copy-start", shape, (source,), kind=kind)
        text = f"buffer={buffer} offset={self.mapping.offset[row]}"
        if kind == "prefetch" and self.mapping.evict[row] < 0:
            text += f" end={self.mapping.end[row]}"
        start.frontend_attributes.map[RESIDENCY_KEY] = text
        self.open[row, kind] = start.id

    def _define(self, item: Any, time: int) -> None:
        """Paint the results of a step, loop or conditional, and note where the buffers now lie."""
        places = []
        for leaf, value in enumerate(self.entry.places[item.id]):
            buffer = self.buffer.get(value)
            if buffer is None:
                places.append(_SLOW)
                continue
            if value not in self.place:
                row = self.at(buffer, max(time, int(self.program.buffer_start[buffer])))
                self.place[value] = row
                (self.slow if row == _SLOW else self.fast)[buffer] = (item.id, leaf)
            places.append(self.place[value])
        self._paint(item, places)

    def _hand_over(self, item: Any) -> None:
        """From here on, read what an asynchronous operation made from its done, not from its start."""
        starts = set(item.operand_ids)
        while any(self.items[identity].opcode == "async-update" for identity in starts):
            starts = {self.items[identity].operand_ids[0] for identity in starts}
        for leaf, value in enumerate(self.entry.places[item.id]):
            for handles in (self.slow, self.fast):
                buffer = self.buffer.get(value, -1)
                if buffer in handles and handles[buffer][0] in starts:
                    handles[buffer] = (item.id, leaf)

    def _rewire(self, item: Any, time: int) -> None:
        """Let a step, loop or conditional read each operand where its buffer lies."""
        if item.opcode == "send-done":  # XLA takes the send itself only, and nothing more is read
            return
        changes = []
        for number, operand in enumerate(list(item.operand_ids)):
            replacement = self._readable(operand, time)
            if replacement != operand:
                changes.append(f"{number}:{self.items[operand].name}")
                item.operand_ids[number] = replacement
        if changes:
            item.frontend_attributes.map[OPERANDS_KEY] = ",".join(changes)

    def _readable(self, operand: int, time: int) -> int:
        """Return an instruction with an operand's bytes, each leaf where it lies at this time."""
        handles: dict[int, tuple[int, int]] = {}
        for leaf, value in enumerate(self.entry.places[operand]):
            buffer = self.buffer.get(value)
            if buffer is None:
                continue
            wanted = self.at(buffer, time)
            if self.place.get(value, _SLOW) == wanted:
                continue
            found = (self.slow if wanted == _SLOW else self.fast).get(buffer)
            if found is not None:  # else its bytes are gone, legally: it is passed on, but nothing reads it
                handles[leaf] = found
        if not handles:
            return operand
        shapes = [shape for _, shape in leaves(self.items[operand].shape)]
        if self.items[operand].shape.element_type != TUPLE:
            return self._array(handles[0], like=shapes[0])
        arrays = [
            self._array(handles[leaf], like=shape) if leaf in handles else self._array(self._source(operand, leaf))
            for leaf, shape in enumerate(shapes)
        ]
        return self._tuple(self.items[operand].shape, iter(arrays))

    def _source(self, identity: int, leaf: int) -> tuple[int, int]:
        """Return the position that a tuple forwards as one of its leaves."""
        while self.items[identity].opcode == "tuple":
            for operand in self.items[identity].operand_ids:
                count = len(self.entry.places[operand])
                if leaf < count:
                    identity = operand
                    break
                leaf -= count
        return identity, leaf

    def _tuple(self, shape: Any, arrays: Any) -> int:
        """Build a tuple of this shape out of arrays, innermost tuples first."""
        # An open tuple: what of its elements is still to come, and what is there.
        stack: list[tuple[list[Any], list[int]]] = [(list(reversed(shape.tuple_shapes)), [])]
        while True:
            todo, made = stack[-1]
            if todo:
                element = todo.pop()
                if element.element_type == TUPLE:
                    stack.append((list(reversed(element.tuple_shapes)), []))
                else:
                    made.append(next(arrays))
                continue
            whole = ShapeProto(element_type=TUPLE)
            for identity in made:
                whole.tuple_shapes.add().CopyFrom(self._item(identity).shape)
            added: int = self._add("tuple", whole, made, kind="tuple").id
            stack.pop()
            if not stack:
                return added
            stack[-1][1].append(added)

    def _array(self, handle: tuple[int, int], *, like: Any = None) -> int:
        """Return an array instruction for a handle, with the dimensions of another array if they differ."""
        identity, leaf = handle
        item = self._item(identity)
        key = (identity, leaf, b"" if like is None else _form(like))
        if key in self.cache:
            return self.cache[key]
        if item.shape.element_type == TUPLE:
            for number in leaves(item.shape)[leaf][0]:
                taken = self._add("get-tuple-element", item.shape.tuple_shapes[number], (item.id,), kind="element")
                taken.tuple_index = number
                item = taken
        if like is not None and _form(like) != _form(item.shape):
            shape = ShapeProto()
            _set_space(shape, like, item.shape.layout.memory_space)
            item = self._add("bitcast", shape, (item.id,), kind="bitcast")
        self.cache[key] = item.id
        return int(item.id)

    def _return(self) -> None:
        """Let the entry computation return its results from slow memory."""
        root = self.entry.computation.root_id
        replacement = self._readable(root, len(self.flat.steps))
        if replacement != root:
            self.module.frontend_attributes.map[ROOT_KEY] = self.items[root].name
            self.entry.computation.root_id = replacement

    # Marks

    def _paint(self, item: Any, places: list[int]) -> None:
        for (_, shape), row in zip(leaves(item.shape), places, strict=True):
            if row != _SLOW:
                _set_space(shape, shape, self.space)

    def _paint_region(self, frame: Frame) -> None:
        flat = self.flat
        outer = frame.span
        while flat.spans[outer].parent >= 0:
            outer = flat.spans[outer].parent
        start = flat.spans[outer].start
        painted = False
        for item in frame.computation.instructions:
            places = []
            for value in frame.places[item.id]:
                buffer = self.buffer.get(value)
                when = max(start, int(self.program.buffer_start[buffer])) if buffer is not None else start
                places.append(_SLOW if buffer is None else self.at(buffer, when))
            self._paint(item, places)
            painted = painted or any(row != _SLOW for row in places)
        if painted and frame.computation.HasField("program_shape"):
            header = frame.computation.program_shape
            for item in frame.computation.instructions:
                if item.opcode == "parameter" and item.parameter_number < len(header.parameters):
                    header.parameters[item.parameter_number].CopyFrom(item.shape)
                if item.id == frame.computation.root_id:
                    header.result.CopyFrom(item.shape)

    def _mark_produced(self) -> None:
        """Write each residency that is produced in fast memory on the instruction that defines its buffer."""
        produced = {
            int(self.mapping.buffer[row]): row
            for row in range(self.mapping.residencies)
            if not self.mapping.prefetched[row]
        }
        found: dict[int, tuple[int, Any]] = {}  # buffer -> time of its first value, and its instruction
        for frame in self.flat.frames:
            for item in frame.computation.instructions:
                for value in frame.places[item.id]:
                    buffer = self.buffer.get(value, -1)
                    name = self.flat.values[value].name
                    if buffer not in produced or not (name == item.name or name.startswith(item.name + "{")):
                        continue
                    time = self.flat.values[value].time
                    if buffer not in found or time < found[buffer][0]:
                        found[buffer] = (time, item)
        for buffer, row in sorted(produced.items()):
            text = f"buffer={buffer} offset={self.mapping.offset[row]}"
            if self.mapping.evict[row] < 0:
                text += f" end={self.mapping.end[row]}"
            attributes = found[buffer][1].frontend_attributes.map
            attributes[RESIDENCY_KEY] = "; ".join(filter(None, (attributes.get(RESIDENCY_KEY), text)))

    # New instructions

    def _item(self, identity: int) -> Any:
        return self.added[identity] if identity in self.added else self.items[identity]

    def _add(self, opcode: str, shape: Any, operands: Any, *, kind: str, place: list[int] | None = None) -> Any:
        item = HloInstructionProto(opcode=opcode)
        item.shape.CopyFrom(shape)
        item.operand_ids.extend(operands)
        self.last_id += 1
        item.id = self.last_id
        number = len(self.added)
        item.name = f"{opcode}.graphsmith.{number}"
        while item.name in self.names:
            number += 1
            item.name = f"{opcode}.graphsmith.{number}"
        self.names.add(item.name)
        item.frontend_attributes.map[ADDED_KEY] = kind
        self.added[item.id] = item
        (self.order if place is None else place).append(item.id)
        return item

    def _finish(self) -> None:
        self.module.frontend_attributes.map[MODULE_KEY] = VERSION
        if not self.mapping.residencies:
            return
        self._mark_produced()
        computation = self.entry.computation
        first = set(self.front)
        order = self.front + [identity for identity in self.order if identity not in first]
        items = []
        for identity in order:  # XLA reads operands before their users
            copy = HloInstructionProto()
            copy.CopyFrom(self._item(identity))
            items.append(copy)
        del computation.instructions[:]
        computation.instructions.extend(items)
        sequence = self.module.schedule.sequences[computation.id].instruction_ids
        del sequence[:]
        sequence.extend(order)


def _set_space(target: Any, source: Any, space: int) -> None:
    """Make `target` the array shape `source` in a memory space."""
    if target is not source:
        target.CopyFrom(source)
    if not target.HasField("layout"):
        target.layout.minor_to_major.extend(reversed(range(len(target.dimensions))))
    if space:
        target.layout.memory_space = space
    else:
        target.layout.ClearField("memory_space")


def _form(shape: Any) -> bytes:
    """What makes two arrays the same apart from where they lie."""
    plain = ShapeProto()
    _set_space(plain, shape, 0)
    form: bytes = plain.SerializeToString(deterministic=True)
    return form
