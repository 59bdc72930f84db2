"""A memory-minimising list schedule, for modules that XLA gives none for."""

from __future__ import annotations

import heapq
from typing import Any

from accelsim.xla.shape import byte_size

# These make no bytes of their own: their storage is their operands', or there before the program starts.
_FORWARDING = frozenset({"tuple", "get-tuple-element", "bitcast", "opt-barrier", "domain", "add-dependency"})
_GIVEN = frozenset({"parameter", "constant"})


def list_schedule(computation: Any) -> list[int]:
    """Order a computation's instruction ids, greedily: of the ready ones, the one that adds the fewest live bytes.

    What an instruction adds is the bytes of its result less those of the buffers that it is the last to use.
    Ties go to the earlier instruction, so the order depends on nothing else. O((n + edges) log n).
    """
    items = list(computation.instructions)
    position = {item.id: number for number, item in enumerate(items)}
    root = position[computation.root_id]
    operands = [[position[i] for i in item.operand_ids] for item in items]
    before = [
        sorted({*operands[number], *(position[i] for i in item.control_predecessor_ids)})
        for number, item in enumerate(items)
    ]
    owners = _owners(items, operands)

    size = [0 if item.opcode in _FORWARDING or item.opcode in _GIVEN else byte_size(item.shape) for item in items]
    uses = [
        sorted({owner for operand in operands[number] for owner in owners[operand]})
        if items[number].opcode not in _FORWARDING
        else []
        for number in range(len(items))
    ]
    remaining = [0] * len(items)
    user_sum = [0] * len(items)  # sum of the users that are not scheduled: the user itself once only one remains
    for number, used in enumerate(uses):
        for owner in used:
            remaining[owner] += 1
            user_sum[owner] += number
    for owner in owners[root]:
        remaining[owner] += 1  # what the root holds is never freed
        user_sum[owner] += len(items)
    frees = [0] * len(items)
    for owner in range(len(items)):
        if remaining[owner] == 1 and user_sum[owner] < len(items):
            frees[user_sum[owner]] += size[owner]

    waiting = [len(needed) for needed in before]
    after: list[list[int]] = [[] for _ in items]
    for number, needed in enumerate(before):
        for operand in needed:
            after[operand].append(number)

    def key(number: int) -> tuple[int, int, int]:
        free_of_cost = items[number].opcode in _FORWARDING or items[number].opcode in _GIVEN
        return (0 if free_of_cost else 1, size[number] - frees[number], number)

    ready = [key(number) for number in range(len(items)) if waiting[number] == 0]
    heapq.heapify(ready)
    done = [False] * len(items)
    order: list[int] = []
    while ready:
        entry = heapq.heappop(ready)
        number = entry[2]
        if done[number] or entry != key(number):
            continue  # an entry from before it could free more; the newer one is in the heap too
        done[number] = True
        order.append(items[number].id)
        for owner in uses[number]:
            remaining[owner] -= 1
            user_sum[owner] -= number
            last = user_sum[owner]
            if remaining[owner] == 1 and last < len(items):
                frees[last] += size[owner]
                if waiting[last] == 0:
                    heapq.heappush(ready, key(last))
        for user in after[number]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, key(user))
    return order


def _owners(items: list[Any], operands: list[list[int]]) -> list[tuple[int, ...]]:
    """For each instruction, the instructions whose storage its result holds."""
    owners: list[tuple[int, ...]] = []
    for number, item in enumerate(items):
        if item.opcode not in _FORWARDING:
            owners.append((number,))
            continue
        source = operands[number][0] if operands[number] else number
        if item.opcode == "tuple":
            owners.append(tuple(sorted({owner for operand in operands[number] for owner in owners[operand]})))
        elif item.opcode == "get-tuple-element" and items[source].opcode == "tuple":
            owners.append(owners[operands[source][item.tuple_index]])
        else:
            owners.append(owners[source])
    return owners
