"""Who prepares a module: the same fence as for runs, without a log."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from webapp.graphs.models import Graph

MAX_ATTEMPTS = 3


def mine(graph: Graph) -> dict[str, Any]:
    """The fence: true while the module is still in this holder's hands."""
    return {"attempt": graph.attempt, "lease_owner": graph.lease_owner, "state": Graph.State.SCHEDULING}


def claim(graph_id: UUID, worker: str) -> Graph | None:
    """Take a module that waits, if nobody has it and it was not tried too often."""
    waiting = Graph.objects.filter(pk=graph_id, state=Graph.State.SCHEDULING, lease_owner="")
    if waiting.filter(attempt__gte=MAX_ATTEMPTS).update(
        state=Graph.State.FAILED,
        error={"code": "attempts", "message": f"{MAX_ATTEMPTS} workers were lost while they prepared this module."},
    ):
        return None
    until = timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)
    if not waiting.update(attempt=F("attempt") + 1, lease_owner=worker, lease_until=until):
        return None
    graph = Graph.objects.select_related("blob").get(pk=graph_id)
    return graph if graph.lease_owner == worker else None


def renew(graph: Graph) -> bool:
    """Hold the module for another lease; say whether it is still in this holder's hands."""
    until = timezone.now() + timedelta(seconds=settings.LEASE_SECONDS)
    return bool(Graph.objects.filter(pk=graph.pk, **mine(graph)).update(lease_until=until))


def settle(graph: Graph, changes: dict[str, Any]) -> bool:
    """Write how it went, and let go; say whether it was still in this holder's hands."""
    free = {"lease_owner": "", "lease_until": None}
    return bool(Graph.objects.filter(pk=graph.pk, **mine(graph)).update(**free, **changes))


def take_away_expired() -> int:
    """Free the modules whose holder has not renewed the lease in time."""
    return _take_away(Q(lease_until__lt=timezone.now()))


def take_away_from(instance: str) -> int:
    """Free all modules that workers of an installation held which are known to be dead."""
    return _take_away(Q(lease_owner__startswith=f"{instance}/"))


def _take_away(condition: Q) -> int:
    held = Graph.objects.filter(condition, state=Graph.State.SCHEDULING).exclude(lease_owner="")
    return held.update(lease_owner="", lease_until=None, announced_at=None)
