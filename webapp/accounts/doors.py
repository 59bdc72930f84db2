"""How a request shows who sends it: an API key, or a session with its CSRF token."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from webapp.accounts import actions, selectors
from webapp.accounts.models import User
from webapp.problems import Problem


class KeyDoor(HttpBearer):
    """`Authorization: Bearer gs_…`."""

    def authenticate(self, request: HttpRequest, token: str) -> User:
        found = selectors.key_owner(token)
        if found is None:
            raise Problem(401, "api-key", "This API key is not valid.")
        user, key = found
        actions.note_use(key)
        return user


class SessionDoor(APIKeyCookie):
    """The session cookie; with a CSRF token for everything that changes something."""

    param_name = settings.SESSION_COOKIE_NAME

    def __call__(self, request: HttpRequest) -> Any | None:
        if not request.user.is_authenticated:
            return None
        require_csrf(request)
        return request.user

    def authenticate(self, request: HttpRequest, key: str | None) -> Any | None:
        raise NotImplementedError("SessionDoor decides in __call__")


def require_csrf(request: HttpRequest) -> None:
    """Refuse an unsafe request without a valid CSRF token."""
    if check_csrf(request) is not None:
        raise Problem(403, "csrf", "The CSRF token is missing or wrong; reload the page.")
