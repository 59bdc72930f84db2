"""Routes for runs: start, watch, steer, download."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.http import HttpRequest, HttpResponseBase
from ninja import Header, Query, Router, Status

from webapp import files
from webapp.pages import page
from webapp.runs import actions, archive, methods, selectors
from webapp.runs.schemas import EventOut, EventPage, MethodOut, MoveIn, RunIn, RunOut, RunPage, RunState

router = Router(tags=["runs"])


def _out(run: actions.Run) -> RunOut:
    return RunOut(**selectors.outline(run))


@router.get("/methods", response=list[MethodOut], by_alias=True)
def search_methods(request: HttpRequest) -> list[dict[str, Any]]:
    """List the search methods, each with the JSON Schema of its settings."""
    # Plain objects: a model's own `schema` would be taken for the field of that name.
    return methods.outlines()


@router.get("/runs", response=RunPage)
def runs(
    request: HttpRequest,
    state: Annotated[list[RunState], Query(default_factory=list)],
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RunPage:
    """List your runs, newest first."""
    rows = selectors.runs_visible_to(request.auth).select_related("graph", "owner").prefetch_related("artifacts")
    if state:
        rows = rows.filter(state__in=state)
    found, following = page(rows, cursor=cursor, limit=limit)
    order = selectors.queue()
    return RunPage(items=[RunOut(**selectors.outline(run, order=order)) for run in found], next=following)


@router.post("/runs", response={201: RunOut, 200: RunOut})
def create_run(
    request: HttpRequest,
    body: RunIn,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", max_length=128)] = None,
) -> Status[RunOut]:
    """Queue a run. The same Idempotency-Key gives the same run again (200) instead of a second one."""
    run, created = actions.create(request.auth, body=body, idempotency_key=idempotency_key)
    return Status(201 if created else 200, _out(run))


@router.get("/runs/{run_id}", response=RunOut)
def run(request: HttpRequest, run_id: UUID) -> RunOut:
    """Describe a run."""
    return _out(selectors.run_for(request.auth, run_id))


@router.delete("/runs/{run_id}", response={204: None})
def delete_run(request: HttpRequest, run_id: UUID) -> Status[None]:
    """Delete a run with its log and files; one that is running is stopped."""
    actions.delete(selectors.run_for(request.auth, run_id))
    return Status(204, None)


@router.post("/runs/{run_id}/stop", response=RunOut)
def stop_run(request: HttpRequest, run_id: UUID) -> RunOut:
    """Stop a run; it keeps its best result and can be resumed."""
    return _out(actions.stop(selectors.run_for(request.auth, run_id)))


@router.post("/runs/{run_id}/resume", response=RunOut)
def resume_run(request: HttpRequest, run_id: UUID) -> RunOut:
    """Go on from the last checkpoint."""
    return _out(actions.resume(selectors.run_for(request.auth, run_id)))


@router.post("/runs/{run_id}/again", response={201: RunOut})
def run_again(request: HttpRequest, run_id: UUID) -> Status[RunOut]:
    """Queue a new run with the same module, device, settings, budget and seed."""
    return Status(201, _out(actions.again(selectors.run_for(request.auth, run_id))))


@router.post("/runs/{run_id}/move", response=RunOut)
def move_run(request: HttpRequest, run_id: UUID, body: MoveIn) -> RunOut:
    """Move a queued run before another of yours, or to the end of yours."""
    before = selectors.run_for(request.auth, body.before) if body.before else None
    return _out(actions.move(selectors.run_for(request.auth, run_id), before=before))


@router.get("/runs/{run_id}/events", response=EventPage)
def events(
    request: HttpRequest,
    run_id: UUID,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 500,
) -> EventPage:
    """Read the run's log after an event's number."""
    run = selectors.run_for(request.auth, run_id)
    found = selectors.events_of(run, after=after, limit=limit)
    items = [EventOut(seq=e.seq, kind=e.kind, data=e.data, created=e.created) for e in found]
    return EventPage(items=items, last_seq=max(run.last_seq, items[-1].seq if items else 0))


@router.get("/runs/{run_id}/artifacts/{name}")
def artifact(request: HttpRequest, run_id: UUID, name: str) -> HttpResponseBase:
    """Download one of the run's files."""
    found = selectors.artifact_for(request.auth, run_id, name)
    stream = default_storage.open(found.file)
    return files.download(stream, name=found.name, size=found.bytes, content_type="application/octet-stream")


@router.get("/runs/{run_id}/archive")
def run_archive(request: HttpRequest, run_id: UUID) -> HttpResponseBase:
    """Download all files of the run as a zip with a manifest and checksums."""
    found = selectors.run_for(request.auth, run_id)
    stream, size = archive.build(found)
    return files.download(stream, name=f"{archive.stem(found)}.zip", size=size, content_type="application/zip")
