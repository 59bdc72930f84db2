"""What a module costs before any search, and what it says about one node."""

from __future__ import annotations

import sys
import threading
from functools import cache
from typing import Any

from django.conf import settings

from accelsim.device import load_device
from accelsim.document import node_details
from accelsim.errors import InputError
from webapp import files
from webapp.children import ChildDied, LineChild
from webapp.graphs import selectors
from webapp.graphs.compilers import compiler
from webapp.graphs.models import Graph, Preview
from webapp.problems import Problem, not_found

PRICE_SECONDS = 240.0  # the first one may have to compile its kernels
WAIT_SECONDS = 60.0

_one_at_a_time = threading.Lock()


@cache
def pricer() -> LineChild:
    """Give this process's child that prices modules."""
    command = [sys.executable, "-m", "webapp.graphs.child", "price"]
    return LineChild(command, memory_bytes=settings.PREPARE_MEMORY_BYTES, tie=False)


def preview(graph: Graph, *, device: str, capacity: int | None) -> dict[str, Any]:
    """Price a module on a device that comes with Graphsmith; remembered."""
    if "/" in device or device.endswith(".toml"):
        raise Problem(422, "device-name", "A device is given by its name, not by a path.", field="device")
    load_device(device, capacity_bytes=capacity)
    key = selectors.preview_key(device, None, capacity)
    known = Preview.objects.filter(graph=graph, key=key).first()
    if known is not None:
        return known.data
    request = {
        "program": str(files.local_path(selectors.program_file(graph))),
        "device": device,
        "capacity": capacity,
    }
    if not _one_at_a_time.acquire(timeout=WAIT_SECONDS):
        raise Problem(503, "busy", "Other modules are being priced; try again.", headers={"Retry-After": "5"})
    try:
        answer = pricer().ask(request, seconds=PRICE_SECONDS)
    except ChildDied as error:
        raise Problem(503, "pricing-failed", f"The process that prices modules failed: {error}.") from error
    finally:
        _one_at_a_time.release()
    if "error" in answer:
        raise InputError(answer["error"]["message"], code=answer["error"]["code"])
    Preview.objects.get_or_create(graph=graph, key=key, defaults={"data": answer["result"]})
    return answer["result"]


def node(graph: Graph, *, view: str, name: str) -> dict[str, Any]:
    """Say all that the module says about one node."""
    proto = files.local_path(selectors.module_file(graph, view)).read_bytes()
    try:
        return node_details(proto, name, compiler=compiler())
    except InputError as error:
        raise not_found() from error
