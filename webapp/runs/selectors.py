"""Read runs; who may see which, and whose turn it is."""

from __future__ import annotations

import heapq
from collections import defaultdict
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from search.engine import Budget
from webapp.accounts.models import User
from webapp.problems import not_found
from webapp.runs.models import Artifact, Run, RunEvent


def runs_visible_to(user: User) -> QuerySet[Run]:
    """List the runs that the user may see: his own."""
    return Run.objects.filter(owner=user)


def run_for(user: User, run_id: UUID) -> Run:
    """Find a run that the user may see and steer."""
    run = runs_visible_to(user).select_related("graph", "owner").filter(pk=run_id).first()
    if run is None:
        raise not_found()
    return run


def artifact_for(user: User, run_id: UUID, name: str) -> Artifact:
    """Find one of a run's artifacts."""
    artifact = run_for(user, run_id).artifacts.filter(name=name).first()
    if artifact is None:
        raise not_found()
    return artifact


def queue() -> list[UUID]:
    """List all queued runs in the order in which they will start: owners take turns.

    The next run belongs to the owner who has the fewest searches running; of several, to the one whose last start
    is longest ago. Among an owner's own runs his order counts.
    """
    waiting: dict[int, list[UUID]] = defaultdict(list)
    for owner_id, run_id in (
        Run.objects.filter(state=Run.State.QUEUED).order_by("rank", "queued", "id").values_list("owner_id", "id")
    ):
        waiting[owner_id].append(run_id)
    if not waiting:
        return []
    never = datetime.min.replace(tzinfo=timezone.get_current_timezone())
    running: dict[int, int] = {}
    last: dict[int, datetime] = {}
    rows = Run.objects.filter(owner_id__in=waiting).values("owner_id")
    for row in rows.annotate(held=Count("id", filter=Q(state__in=Run.HELD)), last=Max("started")).order_by():
        running[row["owner_id"]] = row["held"]
        last[row["owner_id"]] = row["last"] or never
    turns = [(running[owner], 0, last[owner], owner) for owner in waiting]
    heapq.heapify(turns)
    order: list[UUID] = []
    while turns:
        held, taken, moment, owner = heapq.heappop(turns)
        order.append(waiting[owner].pop(0))
        if waiting[owner]:
            # Who has just had a turn comes after those who have as many running but waited longer.
            heapq.heappush(turns, (held + 1, taken + 1, moment, owner))
    return order


def outline(run: Run, *, order: list[UUID] | None = None) -> dict[str, Any]:
    """Describe a run for its routes. `order` is `queue()`, if the caller has it."""
    position = None
    if run.state == Run.State.QUEUED:
        order = queue() if order is None else order
        position = order.index(run.pk) + 1 if run.pk in order else None
    rate = run.evaluations / run.seconds if run.seconds > 0 and run.evaluations else None
    artifacts = [
        {"name": a.name, "bytes": a.bytes, "sha256": a.sha256, "url": f"/api/runs/{run.pk}/artifacts/{a.name}"}
        for a in run.artifacts.all()
    ]
    same = (
        *("id", "state", "reason", "attempt", "settings", "seed", "version", "device", "device_toml", "capacity"),
        *("baselines", "bound", "fits", "best", "step", "evaluations", "seconds", "last_seq", "error"),
        *("created", "started", "finished", "budget"),
    )
    return {name: getattr(run, name) for name in same} | {
        "graph": run.graph_id,
        "graph_name": run.graph.name,
        "owner": run.owner.get_username(),
        "again_of": run.again_of_id,
        "method": run.settings.get("method", ""),
        "bytes": run.event_bytes + run.file_bytes,
        "position": position,
        "evaluations_per_second": rate,
        "seconds_left": seconds_left(run, rate=rate),
        "resumable": may_resume(run),
        "artifacts": artifacts,
    }


def seconds_left(run: Run, *, rate: float | None) -> float | None:
    """Estimate when a running search will be through its budget."""
    if run.state != Run.State.RUNNING:
        return None
    budget = Budget.model_validate(run.budget)
    limits = []
    if budget.seconds is not None:
        limits.append(budget.seconds - run.seconds)
    if budget.evaluations is not None and rate:
        limits.append((budget.evaluations - run.evaluations) / rate)
    return max(0.0, min(limits)) if limits else None


def may_resume(run: Run) -> bool:
    """Say whether a run can go on: it was stopped, or it failed, and there is something to go on from."""
    return run.state == Run.State.STOPPED or (run.state == Run.State.FAILED and bool(run.checkpoint))


def events_of(run: Run, *, after: int, limit: int) -> list[RunEvent]:
    """Read a page of a run's log."""
    return list(run.events.filter(seq__gt=after).order_by("seq")[:limit])
