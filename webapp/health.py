"""Is everything there that a run needs?"""

from __future__ import annotations

import threading
import time
from typing import Any

import redis
from django.conf import settings
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from webapp import files
from webapp.celery import app

FRESH_SECONDS = 2.0  # The workers are asked at most this often, whoever looks.
WORKER_SECONDS = 1.0

_lock = threading.Lock()
_last: tuple[float, dict[str, Any]] | None = None


@require_safe
def healthz(request: HttpRequest) -> JsonResponse:
    """Say whether database, Redis, workers and disk are well: 200, or 503 with what is not."""
    global _last
    with _lock:
        now = time.monotonic()
        if _last is None or now - _last[0] > FRESH_SECONDS:
            _last = (now, check())
        found = _last[1]
    return JsonResponse(found, status=200 if found["ok"] else 503)


def check() -> dict[str, Any]:
    """Look at everything now."""
    redis_well = _redis_well()
    queues = _served_queues() if redis_well else []
    wells = {
        "database": _database_well(),
        "redis": redis_well,
        "workers": {"search", "evaluate", "compile"} <= set(queues),
        "disk": files.free_bytes() > settings.FREE_DISK_BYTES,
    }
    return {"ok": all(wells.values()), **wells, "queues": sorted(queues)}


def _database_well() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return cursor.fetchone() == (1,)
    except DatabaseError:
        return False


def _redis_well() -> bool:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _served_queues() -> list[str]:
    """Name the queues that workers answer for."""
    try:
        answers = app.control.inspect(timeout=WORKER_SECONDS).active_queues() or {}
    except (OperationalError, OSError, redis.RedisError):
        return []
    return list({queue["name"] for queues in answers.values() for queue in queues})
