"""Hand a tuple of columns from one compiled function to the next as one pointer.

numba passes a named tuple of arrays as seven arguments an array. With tens of columns that made a call cost more than
the work behind it, and the solvers took a minute to compile.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.experimental import structref
from numba.extending import overload


@structref.register
class Columns(types.StructRef):
    """Type of a named tuple's columns on the heap; reads like the tuple."""


def handle(columns: Any) -> Any:
    """Return a handle of a named tuple; a handle as it is. For compiled code only."""
    raise TypeError("a handle exists only in compiled code")


def _same(columns: Any) -> Any:
    return columns


@overload(handle)
def _handle(columns: Any) -> Any:
    if isinstance(columns, Columns):
        return _same
    names = columns.fields
    made: Any = Columns
    struct = made(list(zip(names, columns.types, strict=True)))
    lines = ["def move(columns: Any) -> Any:", "    made = new(struct)"]
    lines += [f"    made.{name} = columns.{name}" for name in names]
    scope: dict[str, Any] = {"Any": Any, "new": structref.new, "struct": struct}
    exec("\n".join([*lines, "    return made"]), scope)
    return scope["move"]
