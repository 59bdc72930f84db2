"""Who holds a run: claim, renew, hand back, take away."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from webapp.runs import events, selectors
from webapp.runs.models import Evaluation, Run

State = Run.State


def until(now: datetime) -> datetime:
    """Say how long a lease that is taken or renewed now holds."""
    return now + timedelta(seconds=settings.LEASE_SECONDS)


def mine(run: Run) -> dict[str, Any]:
    """The fence: true while the run is still in this holder's hands."""
    return {"attempt": run.attempt, "lease_owner": run.lease_owner, "state__in": Run.HELD}


def unheld() -> QuerySet[Run]:
    """List the runs that were being stopped when their holder was lost: the next one ends them."""
    return Run.objects.filter(state=State.STOPPING, lease_owner="")


def claim(worker: str) -> Run | None:
    """Take the run whose turn it is; nobody else can take the same one."""
    for run_id in (*unheld().values_list("pk", flat=True), *selectors.queue()):
        run = take(run_id, worker)
        if run is not None:
            return run
    return None


def take(run_id: UUID, worker: str) -> Run | None:
    """Take one run if it waits for a holder: the next attempt begins."""
    run = Run.objects.filter(pk=run_id).first()
    if run is None or run.state not in (State.QUEUED, State.STOPPING):
        return None
    now = timezone.now()
    state = State.RUNNING if run.state == State.QUEUED else State.STOPPING
    try:
        events.append(
            run_id,
            [("state", {"state": str(state), "attempt": run.attempt + 1, "reason": ""})],
            guard={"state": run.state, "attempt": run.attempt, "lease_owner": ""},
            changes={
                "state": state,
                "attempt": F("attempt") + 1,
                "lease_owner": worker,
                "lease_until": until(now),
                "started": run.started or now,
            },
        )
    except events.Replaced:
        return None
    # Answers to a former attempt are of no use: the search asks again from its checkpoint.
    Evaluation.objects.filter(run_id=run_id).delete()
    return Run.objects.select_related("graph", "owner").get(pk=run_id)


def renew(run: Run) -> datetime | None:
    """Hold the run for another lease; say when its stop was asked for.

    Raises:
        Replaced: it is in other hands.
    """
    if not Run.objects.filter(pk=run.pk, **mine(run)).update(lease_until=until(timezone.now())):
        raise events.Replaced(str(run.pk))
    return Run.objects.values_list("stop_requested_at", flat=True).get(pk=run.pk)


def hand_back(run: Run, *, guard: dict[str, Any], reason: str, silent: bool = True) -> None:
    """Let a held run wait for another holder, or give it up after too many attempts that came to nothing.

    A run that is being stopped stays so: the next holder only writes its result.

    Raises:
        Replaced: it is in other hands already.
    """
    free: dict[str, Any] = {"lease_owner": "", "lease_until": None, "announced_at": None}
    tried = run.silent_attempts + int(silent)
    if tried >= settings.MAX_SILENT_ATTEMPTS:
        error = {"code": "attempts", "message": f"{tried} attempts in a row came to nothing; the last one: {reason}"}
        failed = {"state": State.FAILED, "reason": "failed", "error": error, "finished": timezone.now()}
        entries: list[events.Entry] = [
            ("error", error),
            ("state", {"state": str(State.FAILED), "attempt": run.attempt, "reason": "failed"}),
        ]
        events.append(run.pk, entries, guard=guard, changes=free | failed)
    elif run.state == State.STOPPING:
        entries = [("log", {"message": f"{reason}; another worker ends the run"})]
        events.append(run.pk, entries, guard=guard, changes=free | {"silent_attempts": tried})
    else:
        entries = [("state", {"state": str(State.QUEUED), "attempt": run.attempt, "reason": reason})]
        waits = {"state": State.QUEUED, "queued": timezone.now(), "silent_attempts": tried}
        events.append(run.pk, entries, guard=guard, changes=free | waits)


def take_away_expired() -> list[UUID]:
    """Hand back the runs whose holder has not renewed the lease in time."""
    return _take_away(Q(lease_until__lt=timezone.now()), reason="its worker was lost")


def take_away_from(instance: str) -> list[UUID]:
    """Hand back all runs that workers of an installation held which are known to be dead."""
    return _take_away(Q(lease_owner__startswith=f"{instance}/"), reason="the server was restarted")


def _take_away(condition: Q, *, reason: str) -> list[UUID]:
    freed = []
    for run in Run.objects.filter(condition, state__in=Run.HELD):
        try:
            hand_back(run, guard=mine(run) | {"lease_until": run.lease_until}, reason=reason)
        except events.Replaced:
            continue
        freed.append(run.pk)
    return freed
