"""The event log: numbers without gaps, written only by whoever holds the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from webapp import doorbell
from webapp.runs.models import Run, RunEvent

Entry = tuple[str, dict[str, Any]]  # kind, data


class Replaced(Exception):
    """Somebody else took the run over, or its state changed meanwhile: write no more."""


def append(run_id: UUID, entries: Sequence[Entry], *, guard: dict[str, Any], changes: dict[str, Any]) -> int:
    """Change a run and store events about it in one transaction; ring the bell on commit. Return the last number.

    The update takes the row's lock before it gives out numbers, so that commits are in the order of the numbers and
    a reader that asks for "after n" can never skip one.

    Raises:
        Replaced: the run is not (or no longer) as `guard` says; nothing was written.
    """
    with transaction.atomic():
        changed = Run.objects.filter(pk=run_id, **guard).update(last_seq=F("last_seq") + len(entries), **changes)
        if not changed:
            raise Replaced(str(run_id))
        run = Run.objects.only("last_seq", "attempt").get(pk=run_id)
        first = run.last_seq - len(entries) + 1
        RunEvent.objects.bulk_create(
            RunEvent(run_id=run_id, seq=first + place, attempt=run.attempt, kind=kind, data=data)
            for place, (kind, data) in enumerate(entries)
        )
        if entries:
            transaction.on_commit(lambda: doorbell.ring(run_id))
    return run.last_seq


def after(run_id: UUID, seq: int, *, limit: int) -> QuerySet[RunEvent]:
    """Read up to `limit` events with greater numbers, in order."""
    return RunEvent.objects.filter(run_id=run_id, seq__gt=seq).order_by("seq")[:limit]
