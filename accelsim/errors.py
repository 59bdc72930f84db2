"""Errors that accelsim raises on purpose; everything else is a bug."""

from __future__ import annotations


class InputError(ValueError):
    """The user's input cannot be used.

    Attributes:
        message: what is wrong and what to do, for people.
        code: a stable word for programs, e.g. ``hlo-syntax``.
        line, column: 1-based place in the input, where the parser gives one.
    """

    def __init__(self, message: str, *, code: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.line = line
        self.column = column


class CompilerError(RuntimeError):
    """A compiler's child process refused, crashed, or ran over a limit.

    Attributes:
        kind: ``refused`` (an ordinary error), ``crashed`` (a signal), ``timeout``, ``memory``, or ``busy``.
        message: XLA's own words, shortened.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
