"""Change sessions, passwords and keys."""

from __future__ import annotations

import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib import auth
from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.db import transaction
from django.http import HttpRequest
from django.utils import timezone

from webapp import doorbell
from webapp.accounts import selectors
from webapp.accounts.models import ApiKey, LoginAttempt, User
from webapp.problems import Problem

LOCAL_USER = "local"


def login(request: HttpRequest, *, username: str, password: str) -> User:
    """Sign a user in, or count the failure."""
    address = request.META.get("REMOTE_ADDR") or ""
    with transaction.atomic():
        if selectors.too_many_failures(account=username, address=address):
            raise Problem(
                429,
                "login-throttled",
                "Too many failed logins; wait a few minutes and try again.",
                headers={"Retry-After": str(settings.LOGIN_WINDOW_SECONDS)},
            )
        # Counted before the password is looked at, so that many tries at once cannot slip through.
        attempt = LoginAttempt.objects.create(account=selectors.digest(username), address=address)
    user = auth.authenticate(request, username=username, password=password)
    if user is None:
        raise Problem(401, "login-failed", "The name or the password is wrong.")
    LoginAttempt.objects.filter(account=attempt.account, address=address).delete()
    auth.login(request, user)
    return user


def login_locally(request: HttpRequest) -> User:
    """Sign in the user of this machine; the caller has checked that he may."""
    user, created = User.objects.get_or_create(username=LOCAL_USER)
    if created:
        user.set_unusable_password()
        user.save()
    auth.login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return user


def logout(request: HttpRequest) -> None:
    """End the session and close its sockets; do not sign in by itself again on this page."""
    session_key = request.session.session_key
    auth.logout(request)
    request.session[selectors.SIGNED_OUT] = True
    if session_key:
        doorbell.close_sockets(session_key)


def change_password(request: HttpRequest, user: User, *, current: str, new: str) -> None:
    """Set a new password; all other sessions of the user end."""
    if user.has_usable_password() and not user.check_password(current):
        raise Problem(403, "password-wrong", "The current password is wrong.", field="current")
    try:
        password_validation.validate_password(new, user)
    except ValidationError as error:
        raise Problem(422, "password-weak", " ".join(error.messages), field="new") from error
    user.set_password(new)
    user.save(update_fields=["password"])
    auth.update_session_auth_hash(request, user)


def create_key(user: User, *, name: str) -> tuple[ApiKey, str]:
    """Make an API key; the key itself is returned once and never stored."""
    if selectors.keys_of(user).count() >= 50:
        raise Problem(409, "key-limit", "You have 50 API keys; delete one first.")
    prefix = secrets.token_hex(4)
    token = f"{selectors.KEY_START}{prefix}_{secrets.token_urlsafe(32)}"
    key = ApiKey.objects.create(owner=user, name=name, prefix=prefix, digest=selectors.digest(token))
    return key, token


def delete_key(key: ApiKey) -> None:
    """Revoke an API key."""
    key.delete()


def note_use(key: ApiKey) -> None:
    """Remember, to the minute, when a key was used."""
    now = timezone.now()
    if key.last_used is None or now - key.last_used > timedelta(minutes=1):
        ApiKey.objects.filter(pk=key.pk).update(last_used=now)


def forget_old_attempts() -> int:
    """Drop failed logins that no longer count."""
    since = timezone.now() - timedelta(seconds=settings.LOGIN_WINDOW_SECONDS)
    return LoginAttempt.objects.filter(created__lt=since).delete()[0]
