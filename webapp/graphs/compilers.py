"""The web process's own compiler children: for what a request waits for."""

from __future__ import annotations

import atexit
from functools import cache

from django.conf import settings

from accelsim.readers.module import ParsedModule, parse
from accelsim.xla import Compiler

CHILDREN = 2
WAIT_SECONDS = 20.0


@cache
def compiler() -> Compiler:
    """Give this process's pool of compiler children; they start when they are needed."""
    pool = Compiler(children=CHILDREN, wait_seconds=WAIT_SECONDS)
    atexit.register(pool.close)
    return pool


def check_module(data: bytes) -> ParsedModule:
    """Have XLA's parser read an upload.

    Raises:
        InputError: it is not a module that can be used.
        CompilerError: no child was free.
    """
    return parse(data, compiler=compiler(), limit_bytes=settings.UPLOAD_LIMIT_BYTES)
