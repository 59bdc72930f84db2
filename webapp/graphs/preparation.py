"""Prepare a module in a child process with limits, and keep what it made."""

from __future__ import annotations

import contextlib
import json
import logging
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.files.base import File
from django.core.files.storage import default_storage

from webapp import children, files
from webapp.graphs import leases
from webapp.graphs.models import Graph
from webapp.problems import Problem

log = logging.getLogger("graphsmith.preparation")

POLL_SECONDS = 0.2
KEPT_WORDS = 2000


def prepare(graph: Graph) -> None:
    """Bring a claimed module to `ready` or `failed`, unless somebody else took it over."""
    with tempfile.TemporaryDirectory(prefix="graphsmith-") as folder:
        try:
            made = _run_child(graph, Path(folder))
            if made is None:
                return  # In other hands.
            if "error" in made:
                changes = {"state": Graph.State.FAILED, "error": made["error"]}
            else:
                changes = _keep(graph, Path(folder), made)
        except Problem as problem:
            changes = {"state": Graph.State.FAILED, "error": {"code": problem.code, "message": problem.detail}}
    if not leases.settle(graph, changes) and not Graph.objects.filter(pk=graph.pk).exists():
        files.remove_folder(graph.folder)  # Deleted meanwhile.


def _run_child(graph: Graph, folder: Path) -> dict[str, Any] | None:
    spec = {
        "upload": str(files.local_path(graph.blob.file)),
        "folder": str(folder),
        "limit_bytes": settings.UPLOAD_LIMIT_BYTES,
        "device": graph.suggested_device,
        "capacity": graph.suggested_capacity,
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    words = folder / "stderr"
    with words.open("wb") as stderr:
        process = children.spawn(
            [sys.executable, "-m", "webapp.graphs.child", "prepare", str(folder / "spec.json")],
            memory_bytes=settings.PREPARE_MEMORY_BYTES,
            stdout=subprocess.DEVNULL,
            stderr=stderr.fileno(),
        )
        try:
            deadline = time.monotonic() + settings.PREPARE_SECONDS
            renew_at = time.monotonic() + settings.HEARTBEAT_SECONDS
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                now = time.monotonic()
                if now > deadline:
                    raise Problem(422, "timeout", f"Preparing took longer than {settings.PREPARE_SECONDS:g} s.")
                if now > renew_at:
                    if not leases.renew(graph):
                        return None
                    renew_at = now + settings.HEARTBEAT_SECONDS
        finally:
            status = children.kill_group(process)
    result = folder / "result.json"
    if status == 0 and result.is_file():
        return json.loads(result.read_text())
    last = words.read_text(errors="replace")[-KEPT_WORDS:]
    log.error("preparing module %s %s: %s", graph.pk, children.describe_exit(status), last)
    if "MemoryError" in last:
        raise Problem(422, "memory", f"Preparing needed more than {settings.PREPARE_MEMORY_BYTES} bytes of memory.")
    raise Problem(422, "bug", f"The process that prepares the module {children.describe_exit(status)}.")


def _keep(graph: Graph, folder: Path, made: dict[str, Any]) -> dict[str, Any]:
    """Store the files and give the changes of the row."""
    size = 0
    for name in made.pop("files"):
        path = folder / name
        size += path.stat().st_size
        files.require_disk(path.stat().st_size)
        stored = f"{graph.folder}/{name}"
        default_storage.delete(stored)
        with path.open("rb") as stream:
            default_storage.save(stored, File(stream))
    return {"state": Graph.State.READY, "error": None, "derived_bytes": size, **made}
