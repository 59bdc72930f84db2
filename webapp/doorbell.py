"""Tell the sockets that there is something new. A bell that is not heard costs two seconds, never an event."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from asgiref.sync import async_to_sync
from channels.layers import get_channel_layer

from webapp.accounts.selectors import session_group

log = logging.getLogger("graphsmith.doorbell")

RING_SECONDS = 2.0


def run_group(run_id: object) -> str:
    """Name the channel group of a run's watchers."""
    return f"run.{run_id}"


def ring(run_id: object) -> None:
    """Tell a run's watchers that its log has grown."""
    _send(run_group(run_id), {"type": "run.event", "run": str(run_id)})


def close_sockets(session_key: str) -> None:
    """Close the sockets of a session that has ended; those that do not hear it find out at their next heartbeat."""
    _send(session_group(session_key), {"type": "session.ended"})


def _send(group: str, message: dict[str, Any]) -> None:
    async def send() -> None:
        async with asyncio.timeout(RING_SECONDS):
            await get_channel_layer().group_send(group, message)

    try:
        async_to_sync(send)()
    except Exception as error:  # Whatever the broker's client raises: the log is the truth, the bell may be lost.
        log.warning("doorbell of %s is lost: %r", group, error)
