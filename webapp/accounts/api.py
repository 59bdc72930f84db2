"""Routes for signing in and for API keys."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest
from django.middleware.csrf import get_token
from ninja import Router, Status

from webapp import __version__
from webapp.accounts import actions, selectors
from webapp.accounts.doors import SessionDoor, require_csrf
from webapp.accounts.models import ApiKey, User
from webapp.accounts.schemas import KeyIn, KeyOut, LoginIn, NewKeyOut, PasswordIn, SessionOut, UserOut
from webapp.problems import Problem

router = Router(tags=["accounts"])


def _session(request: HttpRequest, user: User | None) -> SessionOut:
    # Rotated at each login: asking for it sets the cookie that the page sends back in X-CSRFToken.
    get_token(request)
    out = user and UserOut(
        id=user.pk,
        username=user.get_username(),
        is_staff=user.is_staff,
        has_password=user.has_usable_password(),
        storage_used_bytes=selectors.storage_used(user),
        storage_quota_bytes=user.storage_quota_bytes,
    )
    return SessionOut(
        user=out or None,
        local=selectors.may_sign_in_locally(request),
        version=__version__,
        upload_limit_bytes=settings.UPLOAD_LIMIT_BYTES,
    )


@router.get("/session", response=SessionOut, auth=None)
def session(request: HttpRequest) -> SessionOut:
    """Say who is signed in; sign in the user of this machine if the page was opened on it."""
    user = request.user if request.user.is_authenticated else None
    if user is None and selectors.may_sign_in_locally(request) and not request.session.get(selectors.SIGNED_OUT):
        user = actions.login_locally(request)
    return _session(request, user)


@router.post("/login", response=SessionOut, auth=None)
def login(request: HttpRequest, body: LoginIn) -> SessionOut:
    """Sign in with name and password."""
    require_csrf(request)
    return _session(request, actions.login(request, username=body.username, password=body.password))


@router.post("/login/local", response=SessionOut, auth=None)
def login_local(request: HttpRequest) -> SessionOut:
    """Sign in as the user of this machine, after a logout."""
    require_csrf(request)
    if not selectors.may_sign_in_locally(request):
        raise Problem(403, "not-local", "Only a page that was opened on the server's own machine may do this.")
    return _session(request, actions.login_locally(request))


@router.post("/logout", response={204: None}, auth=SessionDoor())
def logout(request: HttpRequest) -> Status[None]:
    """End the session and close its sockets."""
    actions.logout(request)
    return Status(204, None)


@router.post("/password", response={204: None}, auth=SessionDoor())
def password(request: HttpRequest, body: PasswordIn) -> Status[None]:
    """Change the password; all other sessions end."""
    actions.change_password(request, request.auth, current=body.current, new=body.new)
    return Status(204, None)


def _key(key: ApiKey) -> dict[str, object]:
    return {name: getattr(key, name) for name in KeyOut.model_fields}


@router.get("/keys", response=list[KeyOut], auth=SessionDoor())
def keys(request: HttpRequest) -> list[KeyOut]:
    """List your API keys."""
    return [KeyOut(**_key(key)) for key in selectors.keys_of(request.auth)]


@router.post("/keys", response={201: NewKeyOut}, auth=SessionDoor())
def create_key(request: HttpRequest, body: KeyIn) -> Status[NewKeyOut]:
    """Make an API key. It is shown once. A key cannot make keys."""
    key, token = actions.create_key(request.auth, name=body.name)
    return Status(201, NewKeyOut(**_key(key), key=token))


@router.delete("/keys/{key_id}", response={204: None}, auth=SessionDoor())
def delete_key(request: HttpRequest, key_id: int) -> Status[None]:
    """Revoke one of your API keys."""
    actions.delete_key(selectors.key_of(request.auth, key_id))
    return Status(204, None)
