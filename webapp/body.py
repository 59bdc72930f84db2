"""Refuse a request body over the limit before it fills the disk: Django spools a body before any view sees it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from django.conf import settings

from webapp.problems import Problem

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class TooBig(Exception):
    """More has come than may come."""


class BodyLimit:
    """Count a body's bytes, announced and real."""

    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = settings.REQUEST_LIMIT_BYTES
        announced = dict(scope["headers"]).get(b"content-length", b"0")
        if not announced.isdigit() or int(announced) > limit:
            await refuse(send)
            return
        taken = 0

        async def counted() -> dict[str, Any]:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > limit:
                raise TooBig
            return message

        try:
            await self.application(scope, counted, send)
        except TooBig:
            await refuse(send)


async def refuse(send: Send) -> None:
    """Answer 413 and close: the rest of the body is not read."""
    problem = Problem(413, "upload-too-big", f"The file is over the limit of {settings.UPLOAD_LIMIT_BYTES} bytes.")
    body = json.dumps(problem.document()).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
