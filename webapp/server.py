"""Serve HTTP and WebSocket on a socket that the launcher holds: it stays open while this process is started again."""

from __future__ import annotations

import os
import socket
import sys

import uvicorn

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")

GRACE_SECONDS = 3
MAX_FRAME_BYTES = 64 * 1024


def main(descriptor: int) -> None:
    """Serve on an open, listening socket until SIGTERM."""
    listener = socket.socket(fileno=descriptor)
    config = uvicorn.Config(
        "webapp.asgi:application",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws_max_size=MAX_FRAME_BYTES,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
