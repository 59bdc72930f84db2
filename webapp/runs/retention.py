"""Drop what nobody needs any more: fine events of old runs, caches, files without a row."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from webapp import files
from webapp.accounts.actions import forget_old_attempts
from webapp.graphs.models import Blob, Graph, Preview
from webapp.runs.models import Run, RunEvent

KEPT_POINTS = 500  # of one run's curve
ORPHAN_SECONDS = 3600.0  # a file without a row may belong to an upload that is just being stored


def tidy() -> dict[str, int]:
    """Do all of it; say how much."""
    now = timezone.now()
    old_runs = Run.objects.filter(
        state__in=Run.ENDED, finished__lt=now - timedelta(days=settings.EVENT_RETENTION_DAYS), thinned=None
    )
    old_previews = Preview.objects.filter(created__lt=now - timedelta(days=settings.CACHE_RETENTION_DAYS))
    return {
        "runs": sum(thin(run) for run in old_runs),
        "previews": old_previews.delete()[0],
        "login_attempts": forget_old_attempts(),
        "files": drop_orphans(),
    }


def thin(run: Run) -> bool:
    """Thin the log of a run that has ended; say whether it still was to be thinned.

    Numbers stay without gaps: of the maps only the first and the last stay, the others become a line of text; of the
    curve about `KEPT_POINTS` points stay, in the events that they came in.
    """
    with transaction.atomic():
        changes = {"thinned": timezone.now()}
        if not Run.objects.filter(pk=run.pk, state=run.state, thinned=None).update(**changes):
            return False
        maps = list(run.events.filter(kind="best").order_by("seq"))
        for event in maps[1:-1]:
            message = f"best: {event.data['latency_ps']} ps at step {event.data['step']}; its map is not kept"
            RunEvent.objects.filter(pk=event.pk).update(kind="log", data={"message": message})
        curve = list(run.events.filter(kind="progress").order_by("seq"))
        points = sum(len(event.data["step"]) for event in curve)
        stride = max(1, -(-points // KEPT_POINTS))
        place = 0
        for event in curve:
            count = len(event.data["step"])
            kept = [row for row in range(count) if (place + row) % stride == 0 or place + row == points - 1]
            place += count
            if len(kept) < count:
                RunEvent.objects.filter(pk=event.pk).update(data=_rows(event.data, kept))
    return True


def _rows(data: dict[str, Any], kept: list[int]) -> dict[str, Any]:
    def pick(columns: dict[str, Any]) -> dict[str, Any]:
        return {name: [column[row] for row in kept] for name, column in columns.items()}

    metrics = pick(data["metrics"])
    return pick({name: column for name, column in data.items() if name != "metrics"}) | {"metrics": metrics}


def drop_orphans() -> int:
    """Delete files and folders that no row knows; say how many."""
    known = {
        "runs": {str(key) for key in Run.objects.values_list("pk", flat=True)},
        "graphs": {str(key) for key in Graph.objects.values_list("pk", flat=True)},
        "uploads": set(Blob.objects.values_list("pk", flat=True)),
    }
    dropped = 0
    for shelf, names in known.items():
        for path in _old(files.local_path(shelf)):
            if path.name not in names:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                dropped += 1
    return dropped


def _old(folder: Path) -> Iterator[Path]:
    before = time.time() - ORPHAN_SECONDS
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if path.stat().st_mtime < before)
