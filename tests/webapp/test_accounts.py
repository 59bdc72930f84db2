"""Signing in and out, passwords, keys, and the user of this machine."""

from __future__ import annotations

import io
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.webapp.conftest import PASSWORD, client_of, csrf, post
from webapp.accounts.models import ApiKey, User

LOCAL = {"host": "localhost:8000"}


def login(client: Any, *, username: str = "olive", password: str = PASSWORD, **headers: str) -> Any:
    return post(client, "/api/login", {"username": username, "password": password}, **headers)


def test_a_user_signs_in_and_out(owner: User) -> None:
    client = client_of(None)
    assert client.get("/api/session").json()["user"] is None
    assert login(client).json()["user"]["username"] == "olive"
    assert client.get("/api/session").json()["user"]["username"] == "olive"
    assert post(client, "/api/logout").status_code == 204
    assert client.get("/api/session").json()["user"] is None


def test_a_wrong_password_and_a_wrong_name_look_the_same(owner: User) -> None:
    wrong = login(client_of(None), password="nonsense")
    unknown = login(client_of(None), username="nobody", password="nonsense")
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()


def test_logins_are_throttled_and_a_success_counts_no_more(owner: User, settings: Any) -> None:
    settings.LOGIN_FAILURES_PER_ACCOUNT = 3
    client = client_of(None)
    for _ in range(2):
        assert login(client, password="nonsense").status_code == 401
    assert login(client).status_code == 200
    for _ in range(3):
        assert login(client_of(None), password="nonsense").status_code == 401
    refused = login(client_of(None))
    assert refused.status_code == 429
    assert int(refused["Retry-After"]) > 0


def test_many_names_from_one_address_are_throttled(db: None, settings: Any) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 4
    statuses = [login(client_of(None), username=f"user{n}", password="nonsense").status_code for n in range(6)]
    assert statuses == [401] * 4 + [429] * 2


def test_a_changed_password_ends_the_other_sessions(owner: User) -> None:
    here, elsewhere = client_of(owner), client_of(owner)
    body = {"current": PASSWORD, "new": "quite another pass phrase"}
    assert post(here, "/api/password", body).status_code == 204
    assert here.get("/api/session").json()["user"] is not None
    assert elsewhere.get("/api/session").json()["user"] is None
    assert login(client_of(None), password="quite another pass phrase").status_code == 200


@pytest.mark.parametrize(("new", "code"), [("short", "password-weak"), ("1029384756", "password-weak")])
def test_a_weak_password_is_refused(new: str, code: str, owner: User) -> None:
    response = post(client_of(owner), "/api/password", {"current": PASSWORD, "new": new})
    assert (response.status_code, response.json()["code"]) == (422, code)


def test_the_current_password_is_needed(owner: User) -> None:
    response = post(client_of(owner), "/api/password", {"current": "nonsense", "new": "quite another pass phrase"})
    assert (response.status_code, response.json()["code"]) == (403, "password-wrong")


def test_a_key_is_shown_once_and_stored_as_a_digest(owner: User) -> None:
    client = client_of(owner)
    made = post(client, "/api/keys", {"name": "ci"}).json()
    assert made["key"].startswith(f"gs_{made['prefix']}_")
    assert "key" not in client.get("/api/keys").json()[0]
    stored = ApiKey.objects.get()
    assert made["key"] not in (stored.digest, stored.prefix)
    bearer = {"authorization": f"Bearer {made['key']}"}
    assert client_of(None).get("/api/runs", headers=bearer).status_code == 200
    client.delete(f"/api/keys/{made['id']}", headers=csrf(client))
    assert client_of(None).get("/api/runs", headers=bearer).status_code == 401


def test_the_key_of_a_deactivated_user_opens_nothing(owner: User) -> None:
    key = post(client_of(owner), "/api/keys", {"name": "ci"}).json()["key"]
    User.objects.update(is_active=False)
    assert client_of(None).get("/api/runs", headers={"authorization": f"Bearer {key}"}).status_code == 401


def test_the_user_of_this_machine_is_signed_in_by_itself(db: None, settings: Any) -> None:
    settings.LOCAL_SIGN_IN = True
    for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", "localhost"):
        session = client_of(None).get("/api/session", headers={"host": host}).json()
        assert (session["user"]["username"], session["local"]) == ("local", True)
    assert User.objects.count() == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "graphsmith.example"},
        {"host": "localhost", "x-forwarded-for": "10.0.0.1"},
        {"host": "localhost.evil.example"},
    ],
)
def test_a_request_from_elsewhere_is_not_signed_in(headers: dict[str, str], db: None, settings: Any) -> None:
    settings.LOCAL_SIGN_IN = True
    settings.ALLOWED_HOSTS = ["*"]
    assert client_of(None).get("/api/session", headers=headers).json()["user"] is None


def test_another_bind_needs_a_login(db: None, settings: Any) -> None:
    settings.LOCAL_SIGN_IN = False
    session = client_of(None).get("/api/session", headers=LOCAL).json()
    assert (session["user"], session["local"]) == (None, False)


def test_after_a_logout_the_user_of_this_machine_stays_out_until_he_asks(db: None, settings: Any) -> None:
    settings.LOCAL_SIGN_IN = True
    client = client_of(None)
    assert client.get("/api/session").json()["user"] is not None
    post(client, "/api/logout")
    assert client.get("/api/session").json()["user"] is None
    assert post(client, "/api/login/local").json()["user"]["username"] == "local"


def test_an_administrator_makes_users_on_the_command_line(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    call_command("createuser", "ada", admin=True, stdout=io.StringIO())
    ada = User.objects.get(username="ada")
    assert ada.is_superuser and ada.check_password(PASSWORD)
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    with pytest.raises(CommandError, match="too short"):
        call_command("createuser", "bob")
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD + "\n"))
    with pytest.raises(CommandError, match="already"):
        call_command("createuser", "ada")
