"""Routes for modules: upload, look at, price, download."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from django.core.files.storage import default_storage
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from ninja import File, Form, Query, Router, Status
from ninja.files import UploadedFile

from webapp import files
from webapp.graphs import actions, previews, selectors
from webapp.graphs.schemas import DeviceOut, DocumentOut, GraphOut, GraphPage, NodeOut, PreviewOut, ProgramOut
from webapp.pages import page
from webapp.problems import Problem

router = Router(tags=["graphs"])
View = Literal["source", "scheduled"]


@router.get("/devices", response=list[DeviceOut])
def devices(request: HttpRequest) -> list[DeviceOut]:
    """List the devices that come with Graphsmith."""
    return [DeviceOut(**selectors.device_outline(device)) for device in selectors.devices()]


@router.get("/graphs", response=GraphPage)
def graphs(
    request: HttpRequest, cursor: str | None = None, limit: Annotated[int, Query(ge=1, le=200)] = 50
) -> GraphPage:
    """List your modules and the examples, newest first."""
    found, following = page(selectors.graphs_visible_to(request.auth), cursor=cursor, limit=limit)
    return GraphPage(items=[GraphOut(**selectors.outline(graph)) for graph in found], next=following)


@router.post("/graphs", response={201: GraphOut})
def create_graph(
    request: HttpRequest,
    file: Annotated[UploadedFile | None, File()] = None,
    example: Annotated[str | None, Form(max_length=100)] = None,
) -> Status[GraphOut]:
    """Upload a module (HLO text or proto, StableHLO; plain or gzip), or take a copy of an example by its name."""
    if (file is None) == (example is None):
        raise Problem(422, "upload-missing", "Send one file, or the name of one example.", field="file")
    if file is None:
        graph = actions.copy_example(request.auth, name=example)
    else:
        graph = actions.upload(request.auth, file=file)
    return Status(201, GraphOut(**selectors.outline(graph)))


@router.get("/graphs/{graph_id}", response=GraphOut)
def graph(request: HttpRequest, graph_id: UUID) -> GraphOut:
    """Describe a module."""
    return GraphOut(**selectors.outline(selectors.graph_for(request.auth, graph_id)))


@router.delete("/graphs/{graph_id}", response={204: None})
def delete_graph(request: HttpRequest, graph_id: UUID) -> Status[None]:
    """Delete a module and its files; its runs must be deleted before."""
    actions.delete(selectors.own_graph(request.auth, graph_id))
    return Status(204, None)


@router.get("/graphs/{graph_id}/document", response=DocumentOut)
def document(request: HttpRequest, graph_id: UUID, view: View = "source") -> HttpResponse:
    """Give the module as a graph: as it came, or scheduled. Columns, gzip, with an ETag."""
    return _document(request, graph_id, view)


@router.get("/graphs/{graph_id}/program", response=ProgramOut)
def program(request: HttpRequest, graph_id: UUID) -> HttpResponse:
    """Give the scheduled steps and the buffers, for the memory map."""
    return _document(request, graph_id, "program")


def _document(request: HttpRequest, graph_id: UUID, kind: str) -> HttpResponse:
    graph = selectors.ready_graph(request.auth, graph_id)
    etag = f'"{graph.pk.hex}-{kind}-{graph.attempt}"'
    if request.headers.get("If-None-Match") == etag:
        response = HttpResponse(status=304)
    else:
        data = selectors.document(graph, kind)
        zipped = "gzip" in request.headers.get("Accept-Encoding", "")
        response = HttpResponse(data if zipped else selectors.unzipped(data), content_type="application/json")
        if zipped:
            response["Content-Encoding"] = "gzip"
    response["ETag"] = etag
    response["Vary"] = "Accept-Encoding, Cookie, Authorization"
    response["Cache-Control"] = "private, no-cache"
    return response


@router.get("/graphs/{graph_id}/nodes/{view}/{path:name}", response=NodeOut)
def node(request: HttpRequest, graph_id: UUID, view: View, name: str) -> NodeOut:
    """Give all that the module says about one node."""
    graph = selectors.ready_graph(request.auth, graph_id)
    return NodeOut(**previews.node(graph, view=view, name=name))


@router.get("/graphs/{graph_id}/preview", response=PreviewOut)
def preview(
    request: HttpRequest,
    graph_id: UUID,
    device: Annotated[str, Query(max_length=64)] = "tpu-v4",
    capacity: Annotated[int | None, Query(ge=1, le=2**50)] = None,
) -> PreviewOut:
    """Price the module on a device before any search."""
    graph = selectors.ready_graph(request.auth, graph_id)
    return PreviewOut(**previews.preview(graph, device=device, capacity=capacity))


@router.get("/graphs/{graph_id}/file")
def file(request: HttpRequest, graph_id: UUID) -> HttpResponseBase:
    """Download the module as it was uploaded."""
    graph = selectors.graph_for(request.auth, graph_id)
    stream = default_storage.open(graph.blob.file)
    return files.download(stream, name=graph.name, size=graph.bytes, content_type="application/octet-stream")
