"""The Celery application: JSON messages that carry one id, late acknowledgement, no results."""

from __future__ import annotations

import os

from celery import Celery
from celery.signals import worker_process_init
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

WEEK_SECONDS = 7 * 24 * 3600


def broker_url(redis_url: str) -> str:
    """Write a Redis address as Celery wants it."""
    return f"redis+socket://{redis_url.removeprefix('unix://')}" if redis_url.startswith("unix://") else redis_url


app = Celery("graphsmith")
app.conf.update(
    broker_url=broker_url(settings.REDIS_URL),
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={
        # Longer than any run: the reaper recovers what is lost, a second delivery would only be in the way.
        "visibility_timeout": WEEK_SECONDS,
        # A publisher must not wait for a Redis that is away: the reaper sends the message again.
        "max_retries": 1,
        "interval_start": 0,
        "interval_step": 0.1,
        "interval_max": 0.2,
    },
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_create_missing_queues=True,
    task_default_queue="compile",
    worker_prefetch_multiplier=1,
    worker_cancel_long_running_tasks_on_connection_loss=False,
    worker_soft_shutdown_timeout=1.0,
    worker_hijack_root_logger=False,
    worker_send_task_events=False,
    timezone="UTC",
)
app.autodiscover_tasks()


@worker_process_init.connect
def _end_with_worker(**_: object) -> None:
    """Let the kernel end a pool process whose worker was killed; it would go on with its task otherwise."""
    from webapp.children import die_with_parent

    die_with_parent()
    if os.getppid() == 1:
        os._exit(1)
