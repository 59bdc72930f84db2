"""Celery's side of modules: schedule, flatten, draw."""

from __future__ import annotations

import os
import socket
from uuid import UUID

from django.conf import settings

from webapp import messages
from webapp.celery import app
from webapp.graphs import leases, preparation


@app.task(name="graphs.prepare", queue="compile", acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def prepare(graph_id: str) -> None:
    """Make a module ready. Whoever comes second finds it taken and ends; the child has its own time limit."""
    graph = leases.claim(UUID(graph_id), f"{settings.INSTANCE}/{socket.gethostname()}:{os.getpid()}")
    if graph is not None:
        preparation.prepare(graph)


def announce_on_commit(graph_id: UUID) -> None:
    """Tell the workers, once the transaction is through, that a module waits."""
    messages.send_on_commit(prepare, str(graph_id))
