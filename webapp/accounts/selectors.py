"""Read users and keys."""

from __future__ import annotations

import hashlib
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import SESSION_KEY, get_user
from django.contrib.auth.models import AnonymousUser
from django.contrib.sessions.backends.db import SessionStore
from django.db.models import QuerySet, Sum
from django.http import HttpRequest
from django.utils import timezone

from webapp.accounts.models import ApiKey, LoginAttempt, User
from webapp.graphs.models import Graph
from webapp.problems import not_found
from webapp.runs.models import Run

KEY_START = "gs_"
SIGNED_OUT = "signed_out"


def digest(text: str) -> str:
    """Hash a secret or a name for the database."""
    return hashlib.sha256(text.encode()).hexdigest()


def key_owner(token: str) -> tuple[User, ApiKey] | None:
    """Find the active user that an API key belongs to."""
    if not token.startswith(KEY_START) or len(token) > 200:
        return None
    key = ApiKey.objects.select_related("owner").filter(digest=digest(token), owner__is_active=True).first()
    return (key.owner, key) if key else None


def keys_of(user: User) -> QuerySet[ApiKey]:
    """List a user's API keys, newest first."""
    return user.api_keys.all()


def key_of(user: User, key_id: int) -> ApiKey:
    """Find one of the user's keys."""
    key = keys_of(user).filter(pk=key_id).first()
    if key is None:
        raise not_found()
    return key


def session_user(session_key: str) -> User | None:
    """Find who a session belongs to now: nobody after a logout, a changed password or a deactivation."""
    request = HttpRequest()
    request.session = SessionStore(session_key)
    if SESSION_KEY not in request.session:
        return None
    user = get_user(request)
    return None if isinstance(user, AnonymousUser) or not user.is_active else user


def session_group(session_key: str) -> str:
    """Name the channel group of a session's sockets."""
    return f"session.{digest(session_key)[:40]}"


def may_sign_in_locally(request: HttpRequest) -> bool:
    """Say whether the page was opened on this very machine.

    The server must be bound to loopback, and the Host header must be local too: a foreign page that points its own
    name at 127.0.0.1 carries that name. A request that came through a proxy is not local.
    """
    if not settings.LOCAL_SIGN_IN:
        return False
    host = request.get_host()
    name = host[: host.index("]") + 1] if host.startswith("[") else host.partition(":")[0]
    forwarded = any(f"HTTP_{header}" in request.META for header in ("FORWARDED", "X_FORWARDED_FOR", "X_REAL_IP"))
    return name in settings.LOCAL_HOSTS and not forwarded


def too_many_failures(*, account: str, address: str) -> bool:
    """Say whether logins for this name from this address, or from this address at all, have to wait."""
    since = timezone.now() - timedelta(seconds=settings.LOGIN_WINDOW_SECONDS)
    recent = LoginAttempt.objects.filter(created__gt=since, address=address)
    if recent.filter(account=digest(account)).count() >= settings.LOGIN_FAILURES_PER_ACCOUNT:
        return True
    return recent.count() >= settings.LOGIN_FAILURES_PER_ADDRESS


def storage_used(user: User) -> int:
    """Add up the bytes of a user's uploads and runs."""
    graphs = Graph.objects.filter(owner=user).aggregate(upload=Sum("bytes"), derived=Sum("derived_bytes"))
    runs = Run.objects.filter(owner=user).aggregate(events=Sum("event_bytes"), files=Sum("file_bytes"))
    return sum(number or 0 for number in (*graphs.values(), *runs.values()))
