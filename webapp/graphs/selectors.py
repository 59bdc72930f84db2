"""Read graphs; who may see which."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.db.models import Q, QuerySet

from accelsim.device import FOLDER, Device, device_names, load_device
from webapp.accounts.models import User
from webapp.graphs.models import Graph
from webapp.problems import Problem, not_found

VIEWS = ("source", "scheduled")


def graphs_visible_to(user: User) -> QuerySet[Graph]:
    """List the user's own graphs and the examples."""
    return Graph.objects.filter(Q(owner=user) | Q(owner=None))


def graph_for(user: User, graph_id: UUID) -> Graph:
    """Find a graph that the user may read."""
    graph = graphs_visible_to(user).filter(pk=graph_id).first()
    if graph is None:
        raise not_found()
    return graph


def own_graph(user: User, graph_id: UUID) -> Graph:
    """Find a graph that the user may change."""
    graph = graph_for(user, graph_id)
    if graph.owner_id != user.pk:
        raise Problem(403, "example", "Examples belong to nobody and stay as they are.")
    return graph


def ready_graph(user: User, graph_id: UUID) -> Graph:
    """Find a graph that the user may read and that has its program."""
    graph = graph_for(user, graph_id)
    if graph.state != Graph.State.READY:
        word = "is still being scheduled" if graph.state == Graph.State.SCHEDULING else "could not be loaded"
        raise Problem(409, f"graph-{graph.state}", f"This module {word}.")
    return graph


def document(graph: Graph, kind: str) -> bytes:
    """Read a stored document, as gzip: `source`, `scheduled`, or `program`."""
    with default_storage.open(f"{graph.folder}/{kind}.json.gz") as stream:
        return stream.read()


def unzipped(data: bytes) -> bytes:
    """Unpack a stored document for a client that does not take gzip."""
    return gzip.decompress(data)


def program_file(graph: Graph) -> str:
    """Name the stored program."""
    return f"{graph.folder}/program.npz"


def module_file(graph: Graph, view: str) -> str:
    """Name the stored module: as it came, or with its schedule."""
    return f"{graph.folder}/{view}.pb"


def devices() -> list[Device]:
    """List the devices that come with Graphsmith."""
    return [load_device(name) for name in device_names()]


def preview_key(device: str, toml: str | None, capacity: int | None) -> str:
    """Hash what a preview depends on beside the module."""
    return hashlib.sha256(json.dumps([device, toml, capacity]).encode()).hexdigest()


def outline(graph: Graph) -> dict[str, Any]:
    """Describe a graph for its routes."""
    suggested = None
    if graph.suggested_device and graph.suggested_capacity:
        suggested = {"device": graph.suggested_device, "capacity": graph.suggested_capacity}
    same = ("id", "name", "title", "provenance", "state", "error", "notes", "format", "bytes", "created")
    counts = ("instructions", "steps", "buffers", "peak_bytes", "schedule_source")
    return {name: getattr(graph, name) for name in (*same, *counts)} | {
        "example": graph.owner_id is None,
        "example_name": graph.example,
        "sha256": graph.blob_id,
        "suggested": suggested,
    }


def device_outline(device: Device) -> dict[str, Any]:
    """Describe a device for its route, with the TOML that it was read from."""
    toml = (FOLDER / f"{device.name}.toml").read_text(encoding="utf-8")
    return dataclasses.asdict(device) | {"toml": toml}
