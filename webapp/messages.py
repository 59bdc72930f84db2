"""Send a task's message. One that is lost is sent again by the reaper, so a broker that is away is no error here."""

from __future__ import annotations

import logging
from typing import Any

from celery import Task
from django.db import transaction
from kombu.exceptions import OperationalError

from webapp.celery import app

log = logging.getLogger("graphsmith.messages")


def send(task: Task, *arguments: Any) -> bool:
    """Send a task's message now; say whether the broker took it."""
    try:
        task.apply_async(arguments, retry=False)
    except (OperationalError, OSError) as error:
        log.warning("message %s%r is lost: %s", task.name, arguments, error)
        return False
    return True


def send_on_commit(task: Task, *arguments: Any) -> None:
    """Send a task's message when the transaction is through."""
    transaction.on_commit(lambda: send(task, *arguments))


def waiting(queue: str) -> int:
    """Count the messages of a queue that no worker has taken yet.

    Raises:
        kombu.exceptions.OperationalError: the broker is away.
    """
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=1)
        with connection.channel() as channel:
            return int(channel.client.llen(queue))
