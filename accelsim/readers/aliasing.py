"""Which values share a buffer, and how long each buffer lives."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

from accelsim.readers.flatten import Flat, Merge, Use
from accelsim.xla.shape import leaves

Interval = tuple[int, int]


class Groups:
    """Sets of values with the steps during which any of their members holds its bytes."""

    def __init__(self, intervals: list[Interval], fixed: list[bool]) -> None:
        self._parent = list(range(len(intervals)))
        self._busy: list[list[Interval]] = [[item] if item[0] < item[1] else [] for item in intervals]
        self._fixed = fixed

    def find(self, value: int) -> int:
        parent = self._parent
        root = value
        while parent[root] != root:
            root = parent[root]
        while parent[value] != root:
            parent[value], value = root, parent[value]
        return root

    def interfere(self, left: int, right: int) -> bool:
        """Whether members of two groups hold different bytes at the same time."""
        one, other = self._busy[self.find(left)], self._busy[self.find(right)]
        if len(one) > len(other):
            one, other = other, one
        for start, end in one:
            place = bisect_left(other, (end,))
            if place and other[place - 1][1] > start:
                return True
        return False

    def fixed(self, value: int) -> bool:
        """Whether the group holds bytes that belong to the caller, so that nothing may overwrite them."""
        return self._fixed[self.find(value)]

    def join(self, left: int, right: int) -> None:
        left, right = self.find(left), self.find(right)
        if left == right:
            return
        if len(self._busy[left]) < len(self._busy[right]):
            left, right = right, left
        self._parent[right] = left
        self._fixed[left] = self._fixed[left] or self._fixed[right]
        busy = self._busy[left]
        for start, end in self._busy[right]:
            # Replace all that overlaps by one interval, so that the list stays sorted and disjoint.
            low = bisect_right(busy, (start,))
            if low and busy[low - 1][1] > start:
                low -= 1
            high = bisect_left(busy, (end,))
            if low < high:
                start, end = min(start, busy[low][0]), max(end, busy[high - 1][1])
            busy[low:high] = [(start, end)]
        self._busy[right] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliases:
    """Buffers of a flat module.

    Attributes:
        group: group of each value.
        reads, writes: (step, value) -> bytes, of the accesses that change because a step works in place.
        unresolved: loop carries and branch results that need a copy which the module does not have.
        outputs: groups that the entry computation returns.
        live: ``[start, end)`` of each group, by group.
        value_live: ``[start, end)`` of each value.
    """

    group: list[int]
    reads: dict[tuple[int, int], int]
    writes: dict[tuple[int, int], int]
    unresolved: tuple[Merge, ...]
    outputs: frozenset[int]
    live: dict[int, Interval]
    value_live: list[Interval]


def find_aliases(flat: Flat, *, force: bool = False) -> Aliases:
    """Join values that must share storage, and in-place results with operands that are dead afterwards.

    Args:
        force: join what loops and branches carry even where a copy is missing.
    """
    values, total = flat.values, len(flat.steps)
    donated, returned = _given_away(flat)
    last = [value.time for value in values]
    ends = [value.time + 1 if value.step else value.time for value in values]
    for use in flat.uses:
        beyond = _beyond(flat, use)
        last[use.value] = max(last[use.value], use.last if beyond is None else beyond)
        ends[use.value] = max(ends[use.value], use.end if beyond is None else beyond)
    for root in flat.roots:
        last[root] = ends[root] = total
    groups = Groups(
        [(value.time, end) for value, end in zip(values, last, strict=True)],
        [value.given and number not in donated for number, value in enumerate(values)],
    )
    unresolved = []
    for merge in flat.merges:
        if groups.find(merge.left) == groups.find(merge.right):
            continue
        if not merge.same and values[merge.left].size and _apart(groups, merge):
            unresolved.append(merge)
            if not force:  # what hangs on it shall not look unresolved as well
                continue
        groups.join(merge.left, merge.right)
    for parameter, root in returned:
        if not groups.interfere(parameter, root):
            groups.join(parameter, root)
    reads: dict[tuple[int, int], int] = {}
    writes: dict[tuple[int, int], int] = {}
    for pair in flat.pairs:
        operand, result = pair.operand, pair.result
        if groups.find(operand) != groups.find(result):
            if values[operand].size < values[result].size:
                continue
            if groups.fixed(operand) or groups.interfere(operand, result):
                continue
            groups.join(operand, result)
        reads[pair.step, operand] = pair.read_bytes
        writes[pair.step, result] = pair.write_bytes
    group = [groups.find(number) for number in range(len(values))]
    outputs = frozenset(group[root] for root in flat.roots)
    return Aliases(
        group=group,
        reads=reads,
        writes=writes,
        unresolved=tuple(unresolved),
        outputs=outputs,
        live=_live_ranges(flat, group, outputs),
        value_live=[(value.time, max(value.time, end)) for value, end in zip(values, ends, strict=True)],
    )


def _apart(groups: Groups, merge: Merge) -> bool:
    """Whether two values that are to share storage cannot: one would overwrite the other, or a caller's bytes."""
    left, right = groups.fixed(merge.left), groups.fixed(merge.right)
    if merge.kind in ("enter", "leave"):
        return (left and right) or groups.interfere(merge.left, merge.right)
    return left or right or groups.interfere(merge.left, merge.right)


def _given_away(flat: Flat) -> tuple[set[int], list[tuple[int, int]]]:
    """Parameters' values that the module may overwrite, and those that share storage with a result."""
    module = flat.module
    entry = flat.frames[0]
    items = {item.parameter_number: item for item in entry.computation.instructions if item.opcode == "parameter"}
    root = next(item for item in entry.computation.instructions if item.id == entry.computation.root_id)

    def leaf(item: Any, index: Any, places: tuple[int, ...]) -> int | None:
        order = [path for path, _ in leaves(item.shape)]
        return places[order.index(tuple(index))] if tuple(index) in order else None

    donated: set[int] = set()
    returned = []
    for entry_proto in module.input_output_alias.entries:
        item = items.get(entry_proto.parameter_number)
        if item is None:
            continue
        parameter = leaf(item, entry_proto.parameter_shape_index, entry.places[item.id])
        result = leaf(root, entry_proto.output_shape_index, flat.roots)
        if parameter is not None:
            donated.add(parameter)
            if result is not None:
                returned.append((parameter, result))
    for donor in module.buffer_donor.entries:
        item = items.get(donor.parameter_number)
        if item is not None:
            parameter = leaf(item, donor.parameter_shape_index, entry.places[item.id])
            if parameter is not None:
                donated.add(parameter)
    return donated, returned


def _beyond(flat: Flat, use: Use) -> int | None:
    """End of the outermost loop or conditional that the use is in and the definition is not."""
    home = flat.values[use.value].span
    span, outer = use.span, -1
    while span != home and span >= 0:
        outer, span = span, flat.spans[span].parent
    return flat.spans[outer].end if outer >= 0 else None


def _live_ranges(flat: Flat, group: list[int], outputs: frozenset[int]) -> dict[int, Interval]:
    """Live range of each group, over whole loops and conditionals wherever it crosses their border."""
    spans, total = flat.spans, len(flat.steps)
    events: dict[int, list[tuple[int, int, int]]] = {}
    for number, value in enumerate(flat.values):
        if value.carry >= 0:  # a carry holds its bytes from iteration to iteration
            loop = spans[value.carry]
            event = (loop.start, loop.end, loop.parent)
        else:
            event = (value.time, value.time + 1 if value.step else value.time, value.span)
        events.setdefault(group[number], []).append(event)
    for use in flat.uses:
        events[group[use.value]].append((use.end, use.end, use.span))
    live: dict[int, Interval] = {}
    depth = [0] * len(spans)
    for number, span in enumerate(spans):
        depth[number] = depth[span.parent] + 1 if span.parent >= 0 else 1
    for root, found in events.items():
        home = _common_span(flat, [span for _, _, span in found], depth)
        start = min(event[0] for event in found)
        end = max(event[1] for event in found)
        seen: set[int] = set()
        for _, _, inner in found:
            outer = inner
            while outer != home and outer not in seen:
                seen.add(outer)
                if spans[outer].parent == home:
                    start, end = min(start, spans[outer].start), max(end, spans[outer].end)
                outer = spans[outer].parent
        if root in outputs:
            end = total
        live[root] = (start, end)
    return live


def _common_span(flat: Flat, inside: list[int], depth: list[int]) -> int:
    """The innermost span that holds all of these, -1 for the top level."""
    common = inside[0]
    for span in inside[1:]:
        while span != common:
            if common < 0 or span < 0:
                return -1
            if depth[span] >= depth[common]:
                span = flat.spans[span].parent
            else:
                common = flat.spans[common].parent
    return common
