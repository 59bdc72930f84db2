"""Sizes and texts of `ShapeProto`."""

from __future__ import annotations

import math
from typing import Any

from accelsim.xla.schema import ELEMENT_TYPES, TUPLE


def array_bytes(shape: Any) -> int:
    """Bytes of one array in memory (tokens and opaque values have none). An exact Python integer: may pass 64 bits.

    As in XLA, types under a byte take a byte an element unless the layout says `E(bits)`.
    """
    bits = ELEMENT_TYPES.get(shape.element_type, ("", 0))[1]
    if bits == 0:
        return 0
    elements: int = math.prod(shape.dimensions)
    return (elements * (int(shape.layout.element_size_in_bits) or max(8, bits)) + 7) // 8


def leaves(shape: Any) -> list[tuple[tuple[int, ...], Any]]:
    """The arrays of a shape in order, each with its tuple index; a shape that is no tuple is its own leaf `()`."""
    if shape.element_type != TUPLE:
        return [((), shape)]
    found: list[tuple[tuple[int, ...], Any]] = []
    stack: list[tuple[tuple[int, ...], Any]] = [((), shape)]
    while stack:
        index, item = stack.pop()
        if item.element_type == TUPLE:
            elements = [((*index, number), element) for number, element in enumerate(item.tuple_shapes)]
            stack.extend(reversed(elements))
        else:
            found.append((index, item))
    return found


def byte_size(shape: Any) -> int:
    """Bytes of all arrays of a shape, without tuple tables."""
    if shape.element_type != TUPLE:
        return array_bytes(shape)
    return sum(array_bytes(leaf) for _, leaf in leaves(shape))


def same_shape(left: Any, right: Any) -> bool:
    """Whether two shapes have the same types and dimensions, whatever their layouts."""
    ours, theirs = leaves(left), leaves(right)
    return len(ours) == len(theirs) and all(
        index == other_index
        and leaf.element_type == other.element_type
        and list(leaf.dimensions) == list(other.dimensions)
        for (index, leaf), (other_index, other) in zip(ours, theirs, strict=True)
    )


def shape_text(shape: Any, *, limit: int = 400) -> str:
    """A shape as XLA prints it, without layouts: ``f32[8,128]``, ``(f32[], s32[4])``; long ones are cut short."""
    if shape.element_type != TUPLE:
        return _array_text(shape)
    parts: list[str] = []
    length = 0
    stack: list[Any] = [shape]  # shapes still to write, and the text between them
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            part = item
        elif item.element_type == TUPLE:
            stack.append(")")
            for number, element in reversed(list(enumerate(item.tuple_shapes))):
                stack.append(element)
                if number:
                    stack.append(", ")
            part = "("
        else:
            part = _array_text(item)
        parts.append(part)
        length += len(part)
        if length > limit and stack != [")"]:
            return "".join(parts) + "…"
    return "".join(parts)


def _array_text(shape: Any) -> str:
    name, bits = ELEMENT_TYPES.get(shape.element_type, ("invalid", 0))
    if bits == 0:
        return f"{name}[]"
    dynamic = list(shape.is_dynamic_dimension)
    sizes = (
        f"<={size}" if number < len(dynamic) and dynamic[number] else str(size)
        for number, size in enumerate(shape.dimensions)
    )
    return f"{name}[{','.join(sizes)}]"
