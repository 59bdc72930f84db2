"""The supervisor keeps a run's log and brings it to its end, whatever its search does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage
from django.db import connection

from tests.webapp.conftest import check_log
from webapp.runs import actions, leases, selectors, supervisor
from webapp.runs.evaluators import evaluate
from webapp.runs.models import Evaluation, Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("protocol_search")]


def work(worker: str = "test/1") -> None:
    """Do what a worker does at a message."""
    while (run := leases.claim(worker)) is not None:
        supervisor.supervise(run)


def result_of(run: Run) -> dict[str, Any]:
    with default_storage.open(run.artifacts.get(name="mapping.json").file) as stream:
        return json.loads(stream.read())


def in_thread(function: Callable[[], None]) -> threading.Thread:
    def call() -> None:
        try:
            function()
        finally:
            connection.close()

    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_it_brings_a_run_to_its_end(make_run: Callable[..., Run]) -> None:
    run = make_run()
    work()
    run.refresh_from_db()
    assert (run.state, run.reason, run.evaluations, run.attempt) == ("finished", "evaluations", 40, 1)
    events = check_log(run)
    assert events[-2].kind == "finished"
    assert events[-1].data == {"state": "finished", "attempt": 1, "reason": "evaluations"}
    assert result_of(run)["best"] == run.best
    assert run.lease_owner == ""
    assert run.file_bytes > 0 and run.event_bytes > 0
    folder = Path(default_storage.path(run.folder))
    assert sorted(path.name for path in folder.iterdir()) == ["artifacts", "attempts"]
    assert not list((folder / "attempts").iterdir())


def test_a_search_that_is_killed_goes_on_from_its_checkpoint_with_the_same_result(make_run: Callable[..., Run]) -> None:
    calm = make_run(evaluations=120)
    killed = make_run(evaluations=120, crash_at=70, once=True)
    work()
    for run in (calm, killed):
        run.refresh_from_db()
        assert run.state == "finished"
        check_log(run)
    assert killed.attempt == 2
    assert result_of(killed) == result_of(calm)


def test_a_search_that_always_crashes_fails_in_the_end(make_run: Callable[..., Run], settings: Any) -> None:
    settings.MAX_SILENT_ATTEMPTS = 3
    run = make_run(crash_at=0)
    work()
    run.refresh_from_db()
    assert (run.state, run.attempt, run.error["code"]) == ("failed", 3, "attempts")
    assert "SIGKILL" in run.error["message"]
    check_log(run)


def test_an_error_of_the_search_is_the_error_of_the_run(make_run: Callable[..., Run]) -> None:
    run = make_run(error_at=5)
    work()
    run.refresh_from_db()
    assert (run.state, run.error) == ("failed", {"code": "cost-overflow", "message": "too large"})
    assert run.evaluations == 5
    check_log(run)


def test_a_search_over_its_memory_limit_fails_clearly(make_run: Callable[..., Run], settings: Any) -> None:
    settings.RUN_MEMORY_BYTES = 1 << 30
    run = make_run(memory_at=5)
    work()
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == ("failed", "memory-limit")


def test_stop_then_resume_gives_the_result_of_an_undisturbed_run(make_run: Callable[..., Run]) -> None:
    calm = make_run(evaluations=150)
    work()
    run = make_run(evaluations=150)
    thread = in_thread(work)
    wait_for(lambda: Run.objects.get(pk=run.pk).evaluations > 20)
    assert actions.stop(selectors.run_for(run.owner, run.pk)).state == "stopping"
    thread.join(timeout=30)
    run.refresh_from_db()
    assert (run.state, run.reason) == ("stopped", "stopped")
    assert run.evaluations < 150
    assert result_of(run)["step"] == run.evaluations
    actions.resume(selectors.run_for(run.owner, run.pk))
    work()
    run.refresh_from_db()
    calm.refresh_from_db()
    assert (run.state, run.attempt) == ("finished", 2)
    assert result_of(run) == result_of(calm)
    check_log(run)


def test_a_search_that_does_not_stop_is_killed(make_run: Callable[..., Run], settings: Any) -> None:
    settings.STOP_GRACE_SECONDS = 0.3
    run = make_run(hang_at=10)
    thread = in_thread(work)
    wait_for(lambda: Run.objects.get(pk=run.pk).evaluations >= 10)
    actions.stop(selectors.run_for(run.owner, run.pk))
    thread.join(timeout=30)
    assert not thread.is_alive()
    run.refresh_from_db()
    assert (run.state, run.reason) == ("stopped", "killed")
    check_log(run)


def test_a_holder_that_was_replaced_writes_no_more(make_run: Callable[..., Run]) -> None:
    run = make_run(evaluations=400)
    thread = in_thread(lambda: supervisor.supervise(leases.claim("test/old")))
    wait_for(lambda: Run.objects.get(pk=run.pk).evaluations > 20)
    # What the reaper and the next worker do when the lease has run out.
    Run.objects.filter(pk=run.pk).update(lease_until="2000-01-01T00:00:00Z")
    assert leases.take_away_expired() in ([run.pk], [])
    Run.objects.filter(pk=run.pk, state="running").update(lease_until="2000-01-01T00:00:00Z")
    leases.take_away_expired()
    wait_for(lambda: Run.objects.get(pk=run.pk).state == "queued")
    thread.join(timeout=30)
    assert not thread.is_alive()
    work("test/new")
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("finished", 2)
    events = check_log(run)
    attempts = [event.attempt for event in events]
    assert attempts == sorted(attempts)


def test_two_workers_that_are_given_one_run_do_it_once(make_run: Callable[..., Run]) -> None:
    run = make_run(evaluations=100)
    threads = [in_thread(lambda name=name: work(name)) for name in ("test/1", "test/2")]
    for thread in threads:
        thread.join(timeout=30)
    run.refresh_from_db()
    assert (run.state, run.attempt) == ("finished", 1)
    check_log(run)


def test_a_run_that_is_deleted_while_it_runs_leaves_nothing(make_run: Callable[..., Run]) -> None:
    run = make_run(evaluations=400)
    thread = in_thread(work)
    wait_for(lambda: Run.objects.get(pk=run.pk).evaluations > 10)
    actions.delete(selectors.run_for(run.owner, run.pk))
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert not Path(default_storage.path(run.folder)).exists()
    assert not Run.objects.exists()


def test_a_full_disk_fails_the_run_and_keeps_its_checkpoint(
    make_run: Callable[..., Run], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.LEASE_SECONDS, settings.HEARTBEAT_SECONDS = 3.0, 0.2
    run = make_run(evaluations=400)
    settings.FREE_DISK_BYTES = 1 << 20
    monkeypatch.setattr(
        "webapp.files.free_bytes", lambda: 0 if Run.objects.get(pk=run.pk).checkpoint_step > 10 else 1 << 40
    )
    work()
    run.refresh_from_db()
    assert (run.state, run.error["code"]) == ("failed", "disk-full")
    assert Path(default_storage.path(f"{run.folder}/{run.checkpoint}")).is_file()
    check_log(run)
    monkeypatch.undo()
    actions.resume(selectors.run_for(run.owner, run.pk))
    work()
    run.refresh_from_db()
    assert run.state == "finished"


def test_evaluations_are_fanned_out_and_their_answers_come_back(
    make_run: Callable[..., Run], sent: list[Any], settings: Any
) -> None:
    settings.EXECUTOR = "supervisor"
    calm = make_run(evaluations=30)
    run = make_run(evaluations=30, fan_out=True)
    thread = in_thread(work)
    deadline = time.monotonic() + 60
    while thread.is_alive() and time.monotonic() < deadline:
        while sent:
            name, arguments = sent.pop(0)
            if name == "runs.evaluate":
                evaluate(*arguments)
        thread.join(timeout=0.01)
    run.refresh_from_db()
    calm.refresh_from_db()
    assert run.state == "finished"
    assert result_of(run) == result_of(calm)
    assert not Evaluation.objects.exists()
    check_log(run)


def wait_for(condition: Callable[[], bool], *, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)
