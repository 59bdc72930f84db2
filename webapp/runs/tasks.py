"""Celery's side of runs: who takes the next one, and who does a piece of its work."""

from __future__ import annotations

import os
import socket
from uuid import UUID

from django.conf import settings

from webapp import messages
from webapp.celery import app
from webapp.runs import evaluators, leases, supervisor


def worker_name() -> str:
    """Name this process in leases."""
    return f"{settings.INSTANCE}/{socket.gethostname()}:{os.getpid()}"


@app.task(name="runs.supervise", queue="search", acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def supervise(run_id: str) -> None:
    """Take whichever run is next in turn, and go on until none waits.

    The message only says that something waits; a second one finds nothing to take and ends. No time limits: the
    budget, the stop flag and the lease end a run.
    """
    while (run := leases.claim(worker_name())) is not None:
        supervisor.supervise(run)


@app.task(name="runs.evaluate", queue="evaluate", acks_late=True, reject_on_worker_lost=True, ignore_result=True)
def evaluate(evaluation_id: int) -> None:
    """Do one evaluation and store its result; a second message for the same finds the result and ends."""
    evaluators.evaluate(evaluation_id)


def announce_on_commit(run_id: UUID) -> None:
    """Tell the workers, once the transaction is through, that a run waits."""
    messages.send_on_commit(supervise, str(run_id))
