"""A scheduled module in line: one list of steps, and which value stands at every position of it.

Values are numbered. Instructions that only forward (tuple, get-tuple-element, bitcast, calls, the done half of an
asynchronous pair) make no values: their positions hold their operands' values. Control flow is entered where it is
called, without recursion, so depth costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from accelsim.errors import InputError
from accelsim.readers.flops import ELEMENTWISE, INT64_MAX, FlopCounter, read_config
from accelsim.readers.fusion import PARTIAL_READS, FusionTraffic, fusion_traffic, in_place_operands
from accelsim.xla.shape import array_bytes, byte_size, leaves

MOST_POSITIONS = 2_000_000  # instructions after everything is in line

_FORWARDING = frozenset({"bitcast", "opt-barrier", "domain", "add-dependency", "async-update", "copy-done"})
# Element 0 of the result repeats the operands, element 1 is the result, the rest are contexts that hold no data.
_STARTS_WITH_OPERANDS = frozenset({"async-start", "all-gather-start", "collective-permute-start"})
_DONES = frozenset({"async-done", "all-gather-done", "collective-permute-done"})
# May write the result over an operand that dies here.
_SHARING = ELEMENTWISE | {
    "all-reduce",
    "copy",
    "custom-call",
    "dynamic-update-slice",
    "fusion",
    "map",
    "scatter",
    "sort",
}

Leaves = tuple[int, ...]


@dataclass(slots=True)
class Value:
    """One definition of bytes: the result of a step, an entry parameter, a constant, a loop carry, a branch result."""

    name: str
    size: int  # bytes
    time: int  # step that defines it, or boundary before which it is defined
    span: int  # span in which it is defined, -1 at top level
    step: bool = False  # defined by the step `time`
    given: bool = False  # there before the program starts
    carry: int = -1  # span of the loop that carries it


@dataclass(frozen=True, slots=True)
class Use:
    """A value is needed before boundary `end`; `last` is how long it keeps its bytes from another value."""

    value: int
    end: int
    last: int
    span: int


@dataclass(slots=True)
class Span:
    """A loop or a conditional: steps ``[start, end)``."""

    start: int
    end: int
    parent: int


@dataclass(slots=True)
class Step:
    item: Any
    computation: Any
    repeat: int
    span: int
    operands: tuple[Leaves, ...]
    results: Leaves
    reads: dict[int, tuple[int, int]] = field(default_factory=dict)  # value -> (operand number, bytes)
    writes: dict[int, int] = field(default_factory=dict)  # value -> bytes


@dataclass(frozen=True, slots=True)
class Pair:
    """A step may write `result` over `operand`; then it reads and writes this many bytes of the shared storage."""

    step: int
    operand: int
    result: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class Site:
    """A place where a copy would keep two values apart: a leaf of an operand, or of a computation's root."""

    computation: int
    instruction: int  # the loop whose operand it is, -1: the root
    leaf: int


@dataclass(frozen=True, slots=True)
class Merge:
    """Two values that share storage because a loop or a conditional carries one into the other.

    Attributes:
        kind: ``enter`` a loop, go ``back`` to its start, ``leave`` it, or end a ``branch``.
        same: both are the same bytes, because the loop does not change what it carries.
        source: where else a copy may help: where a loop's carry enters it, or a branch that returns what came in.
    """

    left: int
    right: int
    kind: str
    site: Site
    same: bool = False
    source: Site | None = None


@dataclass(slots=True)
class Frame:
    """One execution context of a computation."""

    computation: Any
    order: list[int]
    parameters: list[Leaves]
    repeat: int
    span: int
    done: Callable[[Leaves], None]
    position: int = 0
    start: int = 0  # step at which the computation begins
    places: dict[int, Leaves] = field(default_factory=dict)  # instruction id -> values at its leaves
    times: dict[int, int] = field(default_factory=dict)  # instruction id -> steps that are done before it


@dataclass(slots=True)
class Flat:
    """A module in line.

    Attributes:
        merges: values that share storage because a loop or a conditional carries one into the other.
        pairs: results that may overwrite an operand.
        roots: values at the leaves of the entry computation's root.
    """

    module: Any
    flops: FlopCounter
    values: list[Value] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    pairs: list[Pair] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    roots: Leaves = ()
    uncounted_loops: int = 0
    conditionals: int = 0


class _Code:
    """A module's computations, indexed."""

    def __init__(self, module: Any) -> None:
        self.computations: dict[int, Any] = {item.id: item for item in module.computations}
        self._schedule: dict[int, Any] = dict(module.schedule.sequences.items())
        self._items: dict[int, dict[int, Any]] = {}
        self._offsets: dict[tuple[int, int], list[int]] = {}
        self._leaves: dict[tuple[int, int], list[tuple[str, int]]] = {}
        self.fusions: dict[int, FusionTraffic] = {}
        fused = {
            identity
            for computation in module.computations
            for item in computation.instructions
            if item.opcode == "fusion"
            for identity in item.called_computation_ids
        }
        for computation in module.computations:
            if computation.id in fused:
                self.fusions[computation.id] = fusion_traffic(computation, self.fusions)

    def computation(self, identity: int) -> Any:
        try:
            return self.computations[identity]
        except KeyError:
            raise InputError(f"the module has no computation {identity}", code="proto-syntax") from None

    def items(self, computation: Any) -> dict[int, Any]:
        found = self._items.get(computation.id)
        if found is None:
            found = self._items[computation.id] = {item.id: item for item in computation.instructions}
        return found

    def order(self, computation: Any) -> list[int]:
        """Instruction ids in schedule order."""
        if computation.id not in self._schedule:
            raise InputError(f"computation {computation.name} has no schedule", code="schedule-missing")
        order = list(self._schedule[computation.id].instruction_ids)
        if len(order) != len(computation.instructions) or set(order) != self.items(computation).keys():
            raise InputError(
                f"the schedule of {computation.name} does not list its instructions once each", code="schedule-invalid"
            )
        return order

    def offsets(self, computation: int, item: Any) -> list[int]:
        """First leaf of each element of a tuple-shaped instruction, and the number of leaves."""
        key = (computation, item.id)
        found = self._offsets.get(key)
        if found is None:
            found = [0]
            for element in item.shape.tuple_shapes:
                found.append(found[-1] + len(leaves(element)))
            self._offsets[key] = found
        return found

    def leaves(self, computation: int, item: Any) -> list[tuple[str, int]]:
        """Name and bytes of each leaf."""
        key = (computation, item.id)
        found = self._leaves.get(key)
        if found is None:
            found = self._leaves[key] = [
                (item.name + ("{" + ",".join(map(str, index)) + "}" if index else ""), _checked_bytes(item, shape))
                for index, shape in leaves(item.shape)
            ]
        return found


def _checked_bytes(item: Any, shape: Any) -> int:
    size = array_bytes(shape)
    if size > INT64_MAX:
        raise InputError(f"the size of {item.name} does not fit in 64 bits: {size} bytes", code="size-overflow")
    return size


def trip_count(item: Any) -> int | None:
    """Iterations of a while loop, where XLA has written them into its backend_config."""
    config = read_config(item.backend_config)
    count = config.get("known_trip_count") if isinstance(config, dict) else None
    count = count.get("n") if isinstance(count, dict) else None
    if isinstance(count, int | str) and not isinstance(count, bool) and str(count).isdecimal():
        return int(count)
    return None


def flatten(module: Any) -> Flat:
    """Put a scheduled module in line."""
    flattener = _Flattener(module)
    flattener.run()
    return flattener.flat


class _Flattener:
    def __init__(self, module: Any) -> None:
        self.code = _Code(module)
        self.flat = Flat(module=module, flops=FlopCounter(module))
        self.stack: list[Frame] = []
        self.positions = 0
        self.origins: dict[int, int] = {}  # loop-invariant value -> the value that it repeats

    def origin(self, value: int) -> int:
        """The value whose bytes a loop has passed on unchanged."""
        found = value
        while found in self.origins:
            found = self.origins[found]
        while value != found:  # shorten the way for the next time
            self.origins[value], value = found, self.origins[value]
        return found

    def run(self) -> None:
        flat, code = self.flat, self.code
        entry = code.computation(flat.module.entry_computation_id)
        parameters: dict[int, Leaves] = {}
        # By number, not by place: a mapped module lists its instructions in another order.
        for item in sorted(entry.instructions, key=lambda item: item.parameter_number):
            if item.opcode == "parameter":
                parameters[item.parameter_number] = self.make(entry, item, time=0, span=-1, given=True)
        if sorted(parameters) != list(range(len(parameters))):
            raise InputError("the entry computation's parameters are not numbered in line", code="proto-syntax")

        def finish(roots: Leaves) -> None:
            flat.roots = roots

        self.enter(entry, [parameters[n] for n in range(len(parameters))], repeat=1, span=-1, done=finish)
        while self.stack:
            frame = self.stack[-1]
            if frame.position == len(frame.order):
                self.stack.pop()
                root = frame.places.get(frame.computation.root_id)
                if root is None:
                    raise InputError(f"computation {frame.computation.name} has no root", code="proto-syntax")
                frame.done(root)
                continue
            identity = frame.order[frame.position]
            frame.position += 1
            self.positions += 1
            if self.positions > MOST_POSITIONS:
                raise InputError(
                    f"more than {MOST_POSITIONS} instructions once all calls are in line", code="too-many-instructions"
                )
            item = code.items(frame.computation)[identity]
            frame.times[identity] = len(flat.steps)
            try:
                operands = tuple([frame.places[operand] for operand in item.operand_ids])
            except KeyError:
                raise InputError(f"{item.name} is scheduled before an operand", code="schedule-invalid") from None
            self.visit(frame, item, operands)

    def enter(
        self, computation: Any, parameters: list[Leaves], *, repeat: int, span: int, done: Callable[[Leaves], None]
    ) -> None:
        order = self.code.order(computation)
        frame = Frame(computation, order, parameters, repeat, span, done, start=len(self.flat.steps))
        self.flat.frames.append(frame)
        self.stack.append(frame)

    def make(
        self, computation: Any, item: Any, *, time: int, span: int, step: bool = False, given: bool = False,
        carry: int = -1,
    ) -> Leaves:  # fmt: skip
        """Number new values for all leaves of an instruction."""
        values = self.flat.values
        first = len(values)
        for name, size in self.code.leaves(computation.id, item):
            values.append(Value(name, size, time, span, step, given, carry))
        return tuple(range(first, len(values)))

    def need(self, values: Leaves, *, end: int, span: int) -> None:
        """Values are needed up to a boundary between steps."""
        for value in values:
            self.flat.uses.append(Use(value, end, end, span))

    def visit(self, frame: Frame, item: Any, operands: tuple[Leaves, ...]) -> None:
        opcode = item.opcode
        if opcode == "parameter":
            if not 0 <= item.parameter_number < len(frame.parameters):
                raise InputError(f"{item.name} is a parameter that no caller passes", code="proto-syntax")
            places = frame.parameters[item.parameter_number]
            if len(places) != len(self.code.leaves(frame.computation.id, item)):
                raise InputError(f"{item.name} has not the shape that its caller passes", code="proto-syntax")
        elif opcode == "constant":
            places = self.make(frame.computation, item, time=0, span=-1, given=True)
        elif opcode == "tuple":
            places = tuple([value for operand in operands for value in operand])
        elif opcode == "get-tuple-element":
            places = self.element(frame, item, operands, number=item.tuple_index)
        elif opcode in _FORWARDING:
            places = operands[0]
            if opcode == "copy-done":
                places = self.element(frame, item, operands, number=0)
        elif opcode in _DONES:
            places = self.element(frame, item, operands, number=1)
        elif opcode == "all-reduce-done":
            places = operands[0]
        elif opcode == "recv-done":
            places = self.element(frame, item, operands, number=0)
            rest = self.make(frame.computation, item, time=len(self.flat.steps), span=frame.span)
            for value in rest[: len(places)]:
                self.flat.values[value].size = 0  # the received array is there already
            places += rest[len(places) :]
        elif opcode == "while":
            self.enter_while(frame, item, operands)
            return
        elif opcode == "call":
            self.enter_call(frame, item, operands)
            return
        elif opcode == "conditional":
            self.enter_conditional(frame, item, operands)
            return
        elif opcode == "after-all":
            places = self.make(frame.computation, item, time=len(self.flat.steps), span=frame.span)
        else:
            places = self.step(frame, item, operands)
        frame.places[item.id] = places

    def element(self, frame: Frame, item: Any, operands: tuple[Leaves, ...], *, number: int) -> Leaves:
        operand = self.code.items(frame.computation)[item.operand_ids[0]]
        offsets = self.code.offsets(frame.computation.id, operand)
        if not 0 <= number < len(offsets) - 1:
            raise InputError(f"{item.name} takes element {number} of a shape that has none", code="proto-syntax")
        return operands[0][offsets[number] : offsets[number + 1]]

    def step(self, frame: Frame, item: Any, operands: tuple[Leaves, ...]) -> Leaves:
        flat, code = self.flat, self.code
        time = len(flat.steps)
        results = self.make(frame.computation, item, time=time, span=frame.span, step=True)
        written = results
        if item.opcode in _STARTS_WITH_OPERANDS or item.opcode == "send":
            offsets = code.offsets(frame.computation.id, item)
            passed = tuple([value for operand in operands[: 1 if item.opcode == "send" else None] for value in operand])
            written = results[offsets[1] : offsets[2]] if item.opcode != "send" else ()
            for value in results:
                if value not in written:
                    flat.values[value].size = 0  # a repeated operand, or a context without data
            if len(passed) == offsets[1]:
                results = passed + results[offsets[1] :]
        step = Step(item, frame.computation, frame.repeat, frame.span, operands, results)
        flat.steps.append(step)
        self.read(step, frame, item, operands, time)
        for value in written:
            if flat.values[value].size:
                step.writes[value] = flat.values[value].size
        return results

    def read(self, step: Step, frame: Frame, item: Any, operands: tuple[Leaves, ...], time: int) -> None:
        flat = self.flat
        items = self.code.items(frame.computation)
        partial: dict[int, int] = {}
        pairs = []
        if item.opcode == "fusion":
            traffic = self.code.fusions[item.called_computation_ids[0]]
            partial, pairs = traffic.read_bytes, list(traffic.in_place)
        elif item.opcode in PARTIAL_READS:
            partial = {0: byte_size(item.shape)}
        elif item.opcode in ("dynamic-update-slice", "scatter"):
            pairs = in_place_operands(item, {identity: items[identity].shape for identity in item.operand_ids})
        sharing = item.opcode in _SHARING
        for number, operand in enumerate(operands):
            for value in operand:
                size = flat.values[value].size
                if not size:
                    continue
                moved = min(partial.get(number, size), size)
                if value in step.reads:
                    first, before = step.reads[value]
                    step.reads[value] = (first, min(before + moved, size) if moved < size else size)
                else:
                    step.reads[value] = (number, moved)
                flat.uses.append(Use(value, time + 1, time if sharing else time + 1, frame.span))
        for pair in pairs:
            if len(operands[pair.operand]) == 1:
                flat.pairs.append(
                    Pair(time, operands[pair.operand][0], step.results[pair.result], pair.read_bytes, pair.write_bytes)
                )
        for alias in item.output_operand_aliasing:
            found = self.aliased(frame, item, operands, step.results, alias)
            if found is not None:
                operand_value, result_value = found
                read = step.reads.get(operand_value, (0, 0))[1]
                flat.pairs.append(Pair(time, operand_value, result_value, read, flat.values[result_value].size))

    def aliased(
        self, frame: Frame, item: Any, operands: tuple[Leaves, ...], results: Leaves, alias: Any
    ) -> tuple[int, int] | None:
        operand = self.code.items(frame.computation)[item.operand_ids[alias.operand_index]]
        found = []
        for shape, index, values in (
            (operand.shape, alias.operand_shape_index, operands[alias.operand_index]),
            (item.shape, alias.output_shape_index, results),
        ):
            order = {leaf: number for number, (leaf, _) in enumerate(leaves(shape))}
            number = order.get(tuple(index))
            if number is None:
                return None
            found.append(values[number])
        return found[0], found[1]

    def enter_call(self, frame: Frame, item: Any, operands: tuple[Leaves, ...]) -> None:
        def done(roots: Leaves) -> None:
            frame.places[item.id] = roots

        callee = self.code.computation(item.called_computation_ids[0])
        self.enter(callee, list(operands), repeat=frame.repeat, span=frame.span, done=done)

    def enter_while(self, frame: Frame, item: Any, operands: tuple[Leaves, ...]) -> None:
        flat, code = self.flat, self.code
        body, condition = (code.computation(identity) for identity in item.called_computation_ids[:2])
        count = trip_count(item)
        if count is None:
            flat.uncounted_loops += 1
        repeat = frame.repeat * (1 if count is None else count)
        tests = frame.repeat * (1 if count is None else count + 1)
        if tests > INT64_MAX:
            raise InputError(f"the steps of loop {item.name} run more often than 64 bits count", code="size-overflow")
        start = len(flat.steps)
        number = len(flat.spans)
        flat.spans.append(Span(start, start, frame.span))
        parameter = next((inner for inner in body.instructions if inner.opcode == "parameter"), None)
        if parameter is None or len(code.leaves(body.id, parameter)) != len(operands[0]):
            raise InputError(f"the body of {item.name} does not take what the loop carries", code="proto-syntax")
        carries = self.make(body, parameter, time=start, span=number, carry=number)
        self.need(operands[0], end=start, span=frame.span)

        def after_condition(_: Leaves) -> None:
            self.enter(body, [carries], repeat=repeat, span=number, done=after_body)

        def after_body(roots: Leaves) -> None:
            end = len(flat.steps)
            flat.spans[number].end = end
            if len(roots) != len(carries):
                raise InputError(f"the body of {item.name} does not return what the loop carries", code="proto-syntax")
            self.need(roots, end=end, span=number)
            results = self.make(frame.computation, item, time=end, span=frame.span)
            for leaf, carry in enumerate(carries):
                first, last, result = operands[0][leaf], roots[leaf], results[leaf]
                entry = Site(frame.computation.id, item.id, leaf)
                same = self.origin(last) == self.origin(carry)
                if same:
                    self.origins[result] = carry
                    self.origins[carry] = first
                flat.merges.append(Merge(first, carry, "enter", entry, same))
                flat.merges.append(Merge(carry, last, "back", Site(body.id, -1, leaf), same, entry))
                flat.merges.append(Merge(carry, result, "leave", entry, same))
            frame.places[item.id] = results

        self.enter(condition, [carries], repeat=tests, span=number, done=after_condition)

    def enter_conditional(self, frame: Frame, item: Any, operands: tuple[Leaves, ...]) -> None:
        flat, code = self.flat, self.code
        flat.conditionals += 1
        branches = [code.computation(identity) for identity in item.called_computation_ids]
        start = len(flat.steps)
        number = len(flat.spans)
        flat.spans.append(Span(start, start, frame.span))
        self.need(operands[0], end=start, span=frame.span)
        for operand in operands[1:]:  # what is passed stays, whether the branch uses it or not
            self.need(operand, end=start, span=number)
        returned: list[Leaves] = []

        def enter_next() -> None:
            branch = len(returned)
            self.enter(branches[branch], [operands[branch + 1]], repeat=frame.repeat, span=number, done=after_branch)

        def after_branch(roots: Leaves) -> None:
            self.need(roots, end=len(flat.steps), span=number)
            returned.append(roots)
            if len(returned) < len(branches):
                enter_next()
                return
            end = len(flat.steps)
            flat.spans[number].end = end
            results = self.make(frame.computation, item, time=end, span=frame.span)
            if any(len(roots) != len(results) for roots in returned):
                raise InputError(f"a branch of {item.name} returns another shape", code="proto-syntax")
            for leaf, result in enumerate(results):
                sites = [Site(branch.id, -1, leaf) for branch in branches]
                passed = [flat.values[roots[leaf]].span != number for roots in returned]
                source = sites[passed.index(True)] if True in passed else None
                for site, roots in zip(sites, returned, strict=True):
                    flat.merges.append(Merge(roots[leaf], result, "branch", site, source=source))
            frame.places[item.id] = results

        if not branches or len(operands) != len(branches) + 1:
            raise InputError(f"{item.name} has not one operand for each branch", code="proto-syntax")
        enter_next()
