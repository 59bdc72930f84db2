"""Find what fell through: leases that ran out, messages that were lost, events that are old."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta

import redis
from celery import Task
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections
from django.db.models import Q, QuerySet
from django.utils import timezone
from kombu.exceptions import OperationalError

from webapp import messages
from webapp.graphs import leases as graph_leases
from webapp.graphs.models import Graph
from webapp.graphs.tasks import prepare
from webapp.runs import leases, retention
from webapp.runs.models import Run
from webapp.runs.tasks import supervise

log = logging.getLogger("graphsmith.reaper")

DAY_SECONDS = 24 * 3600.0
LOST_SECONDS = 3.0  # a message that no worker has after this time, with an empty queue, is lost


def reap() -> None:
    """Do one round."""
    for run_id in leases.take_away_expired():
        log.warning("run %s lost its worker", run_id)
    freed = graph_leases.take_away_expired()
    if freed:
        log.warning("%d modules lost their worker", freed)
    announce_lost()


def announce_lost() -> None:
    """Send the messages again that were lost with a broker or a worker.

    Only into an empty queue: what lies in the queue is not lost, and a busy worker looks for the next run by itself.
    """
    old = timezone.now() - timedelta(seconds=LOST_SECONDS)
    quiet = Q(announced_at=None) | Q(announced_at__lt=old)
    try:
        runs = Run.objects.filter(quiet, Q(state=Run.State.QUEUED) | Q(state=Run.State.STOPPING, lease_owner=""))
        if runs.exists() and messages.waiting("search") == 0:
            _announce(runs.order_by("rank")[: settings.SEARCH_SLOTS], supervise)
        graphs = Graph.objects.filter(quiet, state=Graph.State.SCHEDULING, lease_owner="")
        if graphs.exists() and messages.waiting("compile") == 0:
            _announce(graphs.order_by("created")[: settings.EVALUATE_SLOTS], prepare)
    except (OperationalError, OSError, redis.RedisError) as error:
        log.warning("the broker is away: %s", error)


def _announce(rows: QuerySet[Run] | QuerySet[Graph], task: Task) -> None:
    for row in rows:
        if messages.send(task, str(row.pk)):
            type(row).objects.filter(pk=row.pk).update(announced_at=timezone.now())


def loop(*, stop: threading.Event) -> None:
    """Reap until told to stop; tidy up once a day, the first time soon after the start."""
    pause = min(2.0, settings.LEASE_SECONDS / 3)
    tidy_at = time.monotonic() + 60
    while not stop.wait(pause):
        try:
            close_old_connections()
            reap()
            if time.monotonic() >= tidy_at:
                tidy_at = time.monotonic() + DAY_SECONDS
                log.info("tidied up: %s", retention.tidy())
        except DatabaseError as error:
            log.warning("the database is away: %s", error)
