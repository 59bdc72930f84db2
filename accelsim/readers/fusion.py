"""What a fusion reads of its operands and writes of its results, to first order (XLA's FusionParameterReadBytes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from accelsim.xla.schema import TUPLE
from accelsim.xla.shape import byte_size

# Only a part of operand 0 is read: as much as comes out.
PARTIAL_READS = frozenset({"slice", "dynamic-slice", "gather"})


@dataclass(frozen=True, slots=True)
class InPlace:
    """A result that may overwrite an operand, and the bytes that then move.

    Attributes:
        result: leaf of the result.
        operand: operand number.
        read_bytes, write_bytes: bytes read of the operand and written to the result, if they share storage.
    """

    result: int
    operand: int
    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class FusionTraffic:
    """Bytes that a fused computation reads of each parameter (`None`: all of it), and its in-place results."""

    read_bytes: dict[int, int]
    in_place: tuple[InPlace, ...]


def in_place_operands(item: Any, shapes: dict[int, Any]) -> list[InPlace]:
    """The results of a dynamic-update-slice or scatter that XLA writes over their operands."""
    if item.opcode == "dynamic-update-slice":
        return [InPlace(0, 0, 0, byte_size(shapes[item.operand_ids[1]]))]
    if item.opcode == "scatter":
        count = (len(item.operand_ids) - 1) // 2
        found = []
        for number in range(count):
            moved = byte_size(shapes[item.operand_ids[count + 1 + number]])
            found.append(InPlace(number, number, moved, moved))
        return found
    return []


def fusion_traffic(computation: Any, nested: dict[int, FusionTraffic]) -> FusionTraffic:
    """Analyse a fused computation; `nested` has the fused computations that it calls."""
    items = {item.id: item for item in computation.instructions}
    shapes = {identity: item.shape for identity, item in items.items()}
    users: dict[int, list[tuple[Any, int]]] = {}
    for item in items.values():
        for number, operand in enumerate(item.operand_ids):
            users.setdefault(operand, []).append((item, number))
    root = items[computation.root_id]
    results = list(root.operand_ids) if root.opcode == "tuple" else [root.id]

    in_place: list[InPlace] = []
    updated: dict[tuple[int, int], int] = {}  # (instruction, operand) that is overwritten -> bytes read of it
    for number, result in enumerate(results):
        producer = items[_behind_bitcasts(items, result)]
        for pair in in_place_operands(producer, shapes):
            parameter = items[_behind_bitcasts(items, producer.operand_ids[pair.operand])]
            plain = parameter.opcode == "parameter" and parameter.shape.element_type != TUPLE
            if plain and pair.result == 0 and producer.shape.element_type != TUPLE:
                in_place.append(InPlace(number, parameter.parameter_number, pair.read_bytes, pair.write_bytes))
                updated[producer.id, pair.operand] = pair.read_bytes
                break

    read_bytes: dict[int, int] = {}
    extra: dict[int, int] = {}
    outputs = set(results)
    for item in items.values():
        if item.opcode != "parameter" or item.shape.element_type == TUPLE:
            continue
        whole = byte_size(item.shape)
        shared, alone = _parameter_reads(item.id, users, shapes, outputs, updated, nested, whole=whole)
        if alone < whole:
            read_bytes[item.parameter_number] = alone
        extra[item.parameter_number] = shared
    pairs = tuple(InPlace(p.result, p.operand, extra.get(p.operand, p.read_bytes), p.write_bytes) for p in in_place)
    return FusionTraffic(read_bytes, pairs)


def _parameter_reads(
    start: int,
    users: dict[int, list[tuple[Any, int]]],
    shapes: dict[int, Any],
    outputs: set[int],
    updated: dict[tuple[int, int], int],
    nested: dict[int, FusionTraffic],
    *,
    whole: int,
) -> tuple[int, int]:
    """Bytes read of a parameter: where it is updated in place, and where the result goes elsewhere."""
    shared = alone = 0
    waiting = [start]
    while waiting:
        current = waiting.pop()
        if current in outputs:
            return whole, whole
        for user, number in users.get(current, ()):
            if user.opcode == "bitcast":
                waiting.append(user.id)
                continue
            if user.opcode in PARTIAL_READS and number == 0:
                moved = byte_size(user.shape)
                shared += moved
                alone += moved
            elif (user.id, number) in updated:
                shared += updated[user.id, number]
                alone += whole
            elif user.opcode == "fusion" and user.called_computation_ids[0] in nested:
                moved = nested[user.called_computation_ids[0]].read_bytes.get(number, whole)
                shared += moved
                alone += moved
            else:
                return whole, whole
            if shared >= whole:
                return whole, whole
    return min(shared, whole), min(alone, whole)


def _behind_bitcasts(items: dict[int, Any], identity: int) -> int:
    while items[identity].opcode == "bitcast":
        identity = items[identity].operand_ids[0]
    return identity
