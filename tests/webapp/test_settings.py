"""What the environment says, and what is refused."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from webapp import environment


def show(expression: str, home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Import the settings in a fresh process and print an expression."""
    dropped = ("DATABASE_URL", "REDIS_URL", "ALLOWED_HOSTS", "GRAPHSMITH_BIND", "GRAPHSMITH_SECRET_KEY")
    base = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.run(
        [sys.executable, "-c", f"from webapp import settings; print({expression})"],
        env=base | {"GRAPHSMITH_HOME": str(home)} | variables,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_the_secret_key_is_made_once_and_readable_by_its_owner_only(tmp_path: Path) -> None:
    first = show("settings.SECRET_KEY", tmp_path / "home")
    second = show("settings.SECRET_KEY", tmp_path / "home")
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout and len(first.stdout) > 40
    path = tmp_path / "home" / "secret_key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert show("settings.SECRET_KEY", tmp_path / "other").stdout != first.stdout


def test_a_bind_that_others_can_reach_needs_allowed_hosts(tmp_path: Path) -> None:
    refused = show("settings.LOCAL_SIGN_IN", tmp_path, GRAPHSMITH_BIND="0.0.0.0")
    assert refused.returncode != 0
    assert "ALLOWED_HOSTS" in refused.stderr
    allowed = show("settings.LOCAL_SIGN_IN", tmp_path, GRAPHSMITH_BIND="0.0.0.0", ALLOWED_HOSTS="graphsmith.example")
    assert allowed.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("bind", "local"), [("127.0.0.1", "True"), ("::1", "True"), ("localhost", "True"), ("", "False")]
)
def test_only_loopback_signs_in_by_itself(bind: str, local: str, tmp_path: Path) -> None:
    assert show("settings.LOCAL_SIGN_IN", tmp_path, GRAPHSMITH_BIND=bind).stdout.strip() == local


def test_debug_is_off_and_sqlite_waits_for_its_turn(tmp_path: Path) -> None:
    shown = show("settings.DEBUG, settings.DATABASES['default']['OPTIONS'], settings.TIME_ZONE", tmp_path)
    assert "False" in shown.stdout and "UTC" in shown.stdout
    for word in ("IMMEDIATE", "journal_mode=WAL", "'timeout': 20"):
        assert word in shown.stdout


def test_a_database_elsewhere_is_taken_from_the_environment(tmp_path: Path) -> None:
    shown = show("settings.DATABASES['default']['ENGINE']", tmp_path, DATABASE_URL="postgresql://u@h/n")
    assert "postgresql" in shown.stdout


def test_slots_leave_one_core_and_are_at_least_one(tmp_path: Path) -> None:
    slots = int(show("settings.SEARCH_SLOTS", tmp_path).stdout)
    assert slots == max(1, len(os.sched_getaffinity(0)) - 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SEARCH_SLOTS", "0"),
        ("SEARCH_SLOTS", "many"),
        ("LEASE_SECONDS", "-1"),
        ("UPLOAD_LIMIT_BYTES", "64MB"),
        ("GRAPHSMITH_HTTPS", "maybe"),
        ("GRAPHSMITH_EXECUTOR", "magic"),
        ("GRAPHSMITH_SECRET_KEY", "short"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start_and_is_named(name: str, value: str, tmp_path: Path) -> None:
    refused = show("settings.DEBUG", tmp_path, **{name: value})
    assert refused.returncode != 0
    assert name in refused.stderr.splitlines()[-1]


def test_readers_give_defaults_for_what_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTHING", raising=False)
    assert environment.text("NOTHING", "x") == "x"
    assert environment.integer("NOTHING", 3) == 3
    assert environment.seconds("NOTHING", 1.5) == 1.5
    assert environment.flag("NOTHING", True) is True
    assert environment.listing("NOTHING") == []
    monkeypatch.setenv("NOTHING", " a, ,b ")
    assert environment.listing("NOTHING") == ["a", "b"]
    monkeypatch.setenv("NOTHING", "11")
    with pytest.raises(ImproperlyConfigured, match="NOTHING"):
        environment.integer("NOTHING", 3, most=10)
