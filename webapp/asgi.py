"""HTTP and WebSocket of one server."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.urls import path, re_path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
pages = get_asgi_application()

# Django must be set up before anything that has models is imported.
from webapp.accounts.sockets import SocketDoor, nowhere  # noqa: E402
from webapp.body import BodyLimit  # noqa: E402
from webapp.runs.consumers import EventsConsumer  # noqa: E402

sockets = [path("ws/events", EventsConsumer.as_asgi()), re_path(r"", nowhere)]
application = ProtocolTypeRouter({"http": BodyLimit(pages), "websocket": SocketDoor(URLRouter(sockets))})
