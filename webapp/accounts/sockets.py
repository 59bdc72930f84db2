"""Who is at the other end of a WebSocket: decided before it is accepted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.http import parse_cookie
from django.http.request import split_domain_port, validate_host

from webapp.accounts import selectors
from webapp.accounts.models import ApiKey, User

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

NOT_SIGNED_IN = 4401
FOREIGN = 4403
NOWHERE = 4404


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """Somebody signed in, and by what."""

    user: User
    session_key: str | None = None
    key_id: int | None = None

    def still_here(self) -> bool:
        """Say whether the session or the key still holds."""
        if self.session_key is not None:
            user = selectors.session_user(self.session_key)
            return user is not None and user.pk == self.user.pk
        return ApiKey.objects.filter(pk=self.key_id, owner__is_active=True).exists()


class SocketDoor:
    """Check Host and Origin, find the visitor, and refuse everybody else before the handshake is answered.

    A page's socket must come from this very origin, port included: cookies do not tell ports apart. A script with an
    API key carries no cookie that a foreign page could make use of, so it needs no Origin.
    """

    def __init__(self, application: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin1").lower(): value.decode("latin1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS):
            await deny(receive, send, FOREIGN)
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if token and kind.lower() == "bearer":
            visitor = await database_sync_to_async(key_visitor)(token.strip())
        elif not same_origin(headers.get("origin", ""), host=host):
            await deny(receive, send, FOREIGN)
            return
        else:
            cookie = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME)
            visitor = await database_sync_to_async(session_visitor)(cookie) if cookie else None
        if visitor is None:
            await deny(receive, send, NOT_SIGNED_IN)
            return
        await self.application(scope | {"visitor": visitor}, receive, send)


def same_origin(origin: str, *, host: str) -> bool:
    """Say whether a page's origin is this server under the name that the request used, or a trusted one."""
    return origin in (f"http://{host}", f"https://{host}") or origin in settings.CSRF_TRUSTED_ORIGINS


def key_visitor(token: str) -> Visitor | None:
    """Find the owner of an API key."""
    found = selectors.key_owner(token)
    return Visitor(user=found[0], key_id=found[1].pk) if found else None


def session_visitor(session_key: str) -> Visitor | None:
    """Find the user of a session."""
    user = selectors.session_user(session_key)
    return Visitor(user=user, session_key=session_key) if user else None


async def deny(receive: Receive, send: Send, code: int) -> None:
    """Refuse the handshake."""
    await receive()
    await send({"type": "websocket.close", "code": code})


async def nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a socket on an address that has none."""
    await deny(receive, send, NOWHERE)
