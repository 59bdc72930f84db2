"""Runs through the API: making, steering, turns, downloads, retention."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.utils import timezone
from kombu.exceptions import OperationalError

from tests.webapp.conftest import client_of, csrf, post
from webapp import messages
from webapp.accounts.models import User
from webapp.graphs.models import Graph
from webapp.problems import Problem
from webapp.runs import actions, archive, events, leases, reaper, retention, selectors
from webapp.runs.models import Artifact, Run, RunEvent

pytestmark = pytest.mark.django_db


def body(graph: Graph, **changes: Any) -> dict[str, Any]:
    return {
        "graph": str(graph.pk),
        "device": "tpu-v4",
        "settings": {"method": "annealing", "chains": 3},
        "budget": {"evaluations": 100},
        "seed": 7,
    } | changes


def test_a_run_is_queued_with_its_recipe(
    owner: User, graph: Graph, sent: list[Any], django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        response = post(client_of(owner), "/api/runs", body(graph))
    run = response.json()
    assert response.status_code == 201
    assert (run["state"], run["position"], run["seed"], run["method"]) == ("queued", 1, 7, "annealing")
    assert run["settings"]["chains"] == 3
    assert run["settings"]["first_cycle"] >= 1  # defaults are filled in
    assert ("runs.supervise", (run["id"],)) in sent
    log = client_of(owner).get(f"/api/runs/{run['id']}/events").json()
    assert [(e["seq"], e["kind"], e["data"]["state"]) for e in log["items"]] == [(1, "state", "queued")]


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"settings": {"method": "magic"}}, "settings", None),
        ({"settings": {"method": "annealing", "chains": 0}}, "settings", None),
        ({"settings": {"method": "annealing", "typo": 1}}, "settings", None),
        ({"budget": {}}, "budget", "budget"),
        ({"budget": {"seconds": -1}}, "invalid", "budget.seconds"),
        ({"budget": {"seconds": float("inf")}}, "budget", "budget.seconds"),
        ({"budget": {"evaluations": 2**63}}, "budget", "budget.evaluations"),
        ({"budget": {"evaluations": 5, "target": 10**30}}, "budget", "budget.target"),
        ({"budget": {"target": 10}}, "budget", "budget"),  # the search refuses it as well
        ({"device": "abacus"}, "device-name", None),
        ({"device": "/etc/passwd.toml"}, "device-name", "device"),
        ({"device": None}, "device", "device"),
        ({"device_toml": "name = 'x'"}, "device", "device"),
        ({"device": None, "device_toml": "name = "}, "device-toml", None),
        ({"capacity": 0}, "invalid", "capacity"),
        ({"capacity": 1}, "device-range", None),
        ({"seed": -1}, "invalid", "seed"),
        ({"extra": 1}, "invalid", "extra"),
    ],
)
def test_a_bad_recipe_is_refused(
    changes: dict[str, Any], code: str, field: str | None, owner: User, graph: Graph
) -> None:
    response = post(client_of(owner), "/api/runs", body(graph, **changes))
    assert (response.status_code, response.json()["code"]) == (422, code)
    if field:
        assert response.json()["field"].endswith(field)
    assert not Run.objects.exists()


def test_a_device_of_ones_own_is_taken(owner: User, graph: Graph) -> None:
    toml = client_of(owner).get("/api/devices").json()[0]["toml"].replace('name = "', 'name = "my-')
    run = post(client_of(owner), "/api/runs", body(graph, device=None, device_toml=toml)).json()
    assert run["device"].startswith("my-")
    assert run["device_toml"] == toml


def test_a_module_that_is_not_ready_cannot_be_searched(owner: User, graph: Graph) -> None:
    Graph.objects.update(state="scheduling")
    assert post(client_of(owner), "/api/runs", body(graph)).json()["code"] == "graph-scheduling"


def test_one_key_makes_one_run(owner: User, stranger: User, graph: Graph) -> None:
    client = client_of(owner)
    first = post(client, "/api/runs", body(graph), **{"Idempotency-Key": "k1"})
    again = post(client, "/api/runs", body(graph), **{"Idempotency-Key": "k1"})
    other = post(client, "/api/runs", body(graph), **{"Idempotency-Key": "k2"})
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 201)
    assert first.json()["id"] == again.json()["id"] != other.json()["id"]
    Graph.objects.update(owner=None, example="small")
    theirs = post(client_of(stranger), "/api/runs", body(graph), **{"Idempotency-Key": "k1"})
    assert theirs.status_code == 201
    assert theirs.json()["id"] != first.json()["id"]


def test_the_methods_come_with_their_forms(owner: User) -> None:
    methods = {method["method"]: method for method in client_of(owner).get("/api/methods").json()}
    assert set(methods) == {"all-slow", "greedy", "xla-style", "annealing"}
    annealing = methods["annealing"]
    assert annealing["schema"]["properties"]["chains"]["minimum"] == 1
    assert annealing["defaults"]["chains"] >= 1
    assert annealing["title"] and annealing["summary"]


def test_owners_take_turns(make_run: Callable[..., Run], owner: User, stranger: User) -> None:
    a = [make_run() for _ in range(3)]
    b = [make_run(owner=stranger) for _ in range(2)]
    order = selectors.queue()
    assert order == [a[0].pk, b[0].pk, a[1].pk, b[1].pk, a[2].pk]
    taken = [leases.claim(f"test/{n}").pk for n in range(5)]
    assert taken == order
    assert leases.claim("test/5") is None


def test_who_has_more_running_waits(make_run: Callable[..., Run], owner: User, stranger: User) -> None:
    a = [make_run() for _ in range(3)]
    for n in range(2):
        assert leases.claim(f"test/{n}").pk == a[n].pk
    b = [make_run(owner=stranger) for _ in range(2)]
    assert selectors.queue() == [b[0].pk, b[1].pk, a[2].pk]


def test_positions_are_shown_and_the_owner_reorders(make_run: Callable[..., Run], owner: User, stranger: User) -> None:
    first, second, third = (make_run() for _ in range(3))
    client = client_of(owner)
    assert client.get(f"/api/runs/{third.pk}").json()["position"] == 3
    moved = post(client, f"/api/runs/{third.pk}/move", {"before": str(first.pk)}).json()
    assert moved["position"] == 1
    assert selectors.queue() == [third.pk, first.pk, second.pk]
    assert post(client, f"/api/runs/{third.pk}/move", {"before": None}).json()["position"] == 3
    foreign = make_run(owner=stranger)
    assert post(client, f"/api/runs/{third.pk}/move", {"before": str(foreign.pk)}).status_code == 404
    leases.take(first.pk, "test/1")
    assert post(client, f"/api/runs/{first.pk}/move", {"before": None}).json()["code"] == "run-not-queued"


def test_a_waiting_run_stops_at_once_and_a_running_one_is_asked(make_run: Callable[..., Run], owner: User) -> None:
    waiting, running = make_run(), make_run()
    leases.take(running.pk, "test/1")
    client = client_of(owner)
    assert post(client, f"/api/runs/{waiting.pk}/stop").json()["state"] == "stopped"
    assert post(client, f"/api/runs/{running.pk}/stop").json()["state"] == "stopping"
    assert post(client, f"/api/runs/{running.pk}/stop").json()["state"] == "stopping"
    running.refresh_from_db()
    assert running.last_seq == 3  # the second stop wrote nothing
    Run.objects.filter(pk=running.pk).update(state="finished")
    assert post(client, f"/api/runs/{running.pk}/stop").json()["code"] == "run-ended"


def test_a_run_whose_holder_is_lost_while_it_stops_is_ended_by_the_next(
    make_run: Callable[..., Run], owner: User
) -> None:
    run = make_run()
    leases.take(run.pk, "test/1")
    post(client_of(owner), f"/api/runs/{run.pk}/stop")
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert leases.take_away_expired() == [run.pk]
    run.refresh_from_db()
    assert (run.state, run.lease_owner) == ("stopping", "")
    taken = leases.claim("test/2")
    assert (taken.pk, taken.state, taken.attempt) == (run.pk, "stopping", 2)
    assert taken.stop_requested_at is not None


def test_again_asks_for_the_same(make_run: Callable[..., Run], owner: User) -> None:
    run = make_run(seed=11)
    again = post(client_of(owner), f"/api/runs/{run.pk}/again").json()
    assert again["id"] != str(run.pk)
    assert again["again_of"] == str(run.pk)
    assert (again["seed"], again["settings"], again["budget"]["evaluations"]) == (11, run.settings, 40)


def test_runs_are_listed_by_state_and_page(make_run: Callable[..., Run], owner: User) -> None:
    runs = [make_run() for _ in range(5)]
    leases.take(runs[0].pk, "test/1")
    client = client_of(owner)
    assert [r["id"] for r in client.get("/api/runs?state=running").json()["items"]] == [str(runs[0].pk)]
    seen, cursor = [], ""
    while True:
        page = client.get(f"/api/runs?limit=2{cursor}").json()
        seen += [r["id"] for r in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert seen == [str(run.pk) for run in reversed(runs)]
    assert client.get("/api/runs?cursor=nonsense").json()["code"] == "cursor"


def test_the_log_is_read_in_pages(make_run: Callable[..., Run], owner: User) -> None:
    run = make_run()
    for number in range(4):
        events.append(run.pk, [("log", {"message": str(number)})], guard={}, changes={})
    page = client_of(owner).get(f"/api/runs/{run.pk}/events?after=1&limit=2").json()
    assert ([e["seq"] for e in page["items"]], page["last_seq"]) == ([2, 3], 5)


def test_a_finished_run_tells_how_fast_it_was(make_run: Callable[..., Run], owner: User) -> None:
    run = make_run(evaluations=1000)
    leases.take(run.pk, "test/1")
    Run.objects.update(evaluations=250, seconds=5.0)
    shown = client_of(owner).get(f"/api/runs/{run.pk}").json()
    assert (shown["evaluations_per_second"], shown["seconds_left"]) == (50.0, 15.0)


def artifact(run: Run, name: str, data: bytes) -> Artifact:
    file = f"{run.folder}/artifacts/1/{hashlib.sha256(name.encode()).hexdigest()}"
    default_storage.save(file, ContentFile(data))
    return Artifact.objects.create(
        run=run, name=name, file=file, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )


def test_the_archive_has_all_files_a_manifest_and_checksums(make_run: Callable[..., Run]) -> None:
    run = make_run()
    for name, data in (
        ("mapping.json", b"{}"),
        ("../../etc/passwd", b"evil"),
        ("<b>.svg", b"<svg/>"),
        ("a b.svg", b"x"),
    ):
        artifact(run, name, data)
    stream, size = archive.build(run)
    with stream, zipfile.ZipFile(stream) as zipped:
        names = zipped.namelist()
        assert len(set(names)) == len(names) == 6
        assert all(name == Path(name).name and not name.startswith(".") for name in names)
        manifest = json.loads(zipped.read("manifest.json"))
        assert manifest["settings"] == run.settings and manifest["seed"] == run.seed
        assert manifest["input"]["sha256"] == run.graph.blob_id
        for entry in manifest["files"]:
            assert hashlib.sha256(zipped.read(entry["name"])).hexdigest() == entry["sha256"]
        assert f"{manifest['files'][0]['sha256']}  {manifest['files'][0]['name']}" in zipped.read("SHA256SUMS").decode()
        assert size > 0
    first, second = (archive.build(run)[0].read() for _ in range(2))
    assert first == second


def test_delete_removes_the_files(
    make_run: Callable[..., Run], owner: User, django_capture_on_commit_callbacks: Any
) -> None:
    run = make_run()
    artifact(run, "mapping.json", b"{}")
    folder = Path(default_storage.path(run.folder))
    assert folder.is_dir()
    client = client_of(owner)
    with django_capture_on_commit_callbacks(execute=True):
        assert client.delete(f"/api/runs/{run.pk}", headers=csrf(client)).status_code == 204
    assert not folder.exists()
    assert not RunEvent.objects.exists() and not Artifact.objects.exists()


def test_a_full_storage_takes_no_more_runs(make_run: Callable[..., Run], owner: User, graph: Graph) -> None:
    run = make_run()
    Run.objects.update(file_bytes=10**9, state="stopped")
    User.objects.update(quota_bytes=10**6)
    client = client_of(owner)
    for path, data in (
        ("/api/runs", body(graph)),
        (f"/api/runs/{run.pk}/again", None),
        (f"/api/runs/{run.pk}/resume", None),
    ):
        assert post(client, path, data).json()["code"] == "storage-quota"


def test_the_reaper_frees_a_run_whose_worker_is_gone_and_sends_its_message(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, sent: list[Any]
) -> None:
    run = make_run()
    leases.take(run.pk, "test/1")
    Run.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    sent.clear()
    waiting = {"search": 1, "compile": 0}
    monkeypatch.setattr("webapp.messages.waiting", lambda queue: waiting[queue])
    reaper.reap()
    run.refresh_from_db()
    assert (run.state, run.lease_owner, run.attempt, run.silent_attempts) == ("queued", "", 1, 1)
    assert sent == []  # something lies in the queue already
    waiting["search"] = 0
    reaper.reap()
    assert sent == [("runs.supervise", (str(run.pk),))]
    reaper.reap()
    assert len(sent) == 1  # and not again at once


def test_a_broker_that_is_away_does_not_stop_the_reaper(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run()
    Run.objects.update(announced_at=None)

    def away(queue: str) -> int:
        raise OSError("no broker")

    monkeypatch.setattr("webapp.messages.waiting", away)
    reaper.reap()


def test_old_runs_are_thinned_without_gaps(make_run: Callable[..., Run]) -> None:
    run = make_run()
    for number in range(200):
        data = {
            "step": list(range(10 * number, 10 * number + 10)),
            "evaluations": list(range(10)),
            "seconds": [0.0] * 10,
            "best": [1] * 10,
            "metrics": {"value": [None, *range(9)]},
        }
        best = {"step": number, "evaluations": number, "latency_ps": 1000 - number, "map": {"buffer": [1] * 50}}
        events.append(run.pk, [("progress", data), ("best", best)], guard={}, changes={})
    Run.objects.update(state="finished", finished=timezone.now() - timedelta(days=30))
    run.refresh_from_db()
    assert retention.tidy()["runs"] == 1
    log = list(run.events.order_by("seq"))
    assert [event.seq for event in log] == list(range(1, run.last_seq + 1))
    maps = [event for event in log if event.kind == "best"]
    assert [event.data["latency_ps"] for event in maps] == [1000, 801]
    points = [step for event in log if event.kind == "progress" for step in event.data["step"]]
    assert 400 <= len(points) <= 600 and points[-1] == 1999 and points == sorted(points)
    for event in log:
        if event.kind == "progress":
            assert len(event.data["metrics"]["value"]) == len(event.data["step"])
    assert retention.tidy()["runs"] == 0


def test_files_without_a_row_are_dropped_when_they_are_old(make_run: Callable[..., Run]) -> None:
    run = make_run()
    artifact(run, "mapping.json", b"{}")
    for name in ("runs/gone/file", "graphs/gone/file", "uploads/gone"):
        default_storage.save(name, ContentFile(b"x"))
    assert retention.drop_orphans() == 0
    old = time.time() - 2 * retention.ORPHAN_SECONDS
    for name in ("runs/gone", "graphs/gone", "uploads/gone", run.folder):
        os.utime(default_storage.path(name), (old, old))
    assert retention.drop_orphans() == 3
    assert Path(default_storage.path(run.folder)).is_dir()


def test_a_lost_message_is_no_error() -> None:
    class Away:
        name = "runs.supervise"

        def apply_async(self, arguments: Any, retry: bool) -> None:
            raise OperationalError("no broker")

    assert messages.send(Away(), "x") is False


@pytest.mark.django_db(transaction=True)
def test_a_run_that_is_deleted_meanwhile_cannot_be_run_again(owner: User, graph: Graph, sent: list[Any]) -> None:
    client = client_of(owner)
    run = Run.objects.get(pk=post(client, "/api/runs", body(graph)).json()["id"])
    Run.objects.filter(pk=run.pk).delete()
    with pytest.raises(Problem) as caught:
        actions.again(run)  # the database looks at the commit
    assert caught.value.status == 404
