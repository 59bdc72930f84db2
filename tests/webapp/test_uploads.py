"""Modules from users: each bad one gets a clear answer and leaves nothing behind."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.conf import settings as django_settings
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile

from tests.webapp.conftest import SMALL_HLO, client_of, csrf
from webapp.accounts.models import User
from webapp.asgi import application
from webapp.graphs import actions, compilers, preparation, previews
from webapp.graphs import leases as graph_leases
from webapp.graphs.examples import FOLDER, seed
from webapp.graphs.models import Blob, Graph

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


@pytest.fixture(scope="module", autouse=True)
def _compilers() -> Iterator[None]:
    yield
    compilers.compiler().close()
    compilers.compiler.cache_clear()
    previews.pricer().close()


def upload(user: User, data: bytes, *, name: str = "module.hlo") -> Any:
    client = client_of(user)
    return client.post("/api/graphs", {"file": SimpleUploadedFile(name, data)}, headers=csrf(client))


def stored() -> list[Path]:
    return [path for path in Path(django_settings.MEDIA_ROOT).rglob("*") if path.is_file()]


BAD = {
    "empty": (b"", 422),
    "only blanks": (b" \n\t\n", 422),
    "binary": (bytes(range(256)) * 8, 422),
    "truncated": (SMALL_HLO[:150], 422),
    "unknown opcode": (SMALL_HLO.replace(b"dot(", b"frobnicate("), 422),
    "truncated gzip": (gzip.compress(SMALL_HLO)[:-20], 422),
    "a bomb": (gzip.compress(b" " * 80_000_000), 422),
    "too large sizes": (b"HloModule big\n\nENTRY e {\n  ROOT p = f32[9223372036854775807,4] parameter(0)\n}\n", 422),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_upload_is_refused_and_leaves_nothing(what: str, owner: User) -> None:
    data, status = BAD[what]
    response = upload(owner, data)
    assert response.status_code == status
    assert response["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["code"] and problem["detail"] and problem["status"] == status
    assert not Graph.objects.exists() and not Blob.objects.exists()
    assert stored() == []


@pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=é"])
def test_a_request_that_is_no_form_is_refused(boundary: str, owner: User) -> None:
    client = client_of(owner)
    response = client.post("/api/graphs", b"--x", content_type=f"multipart/form-data{boundary}", headers=csrf(client))
    assert 400 <= response.status_code < 500
    assert response.json()["code"] != "bug"


def test_a_syntax_error_says_where(owner: User) -> None:
    problem = upload(owner, SMALL_HLO.replace(b"dot(", b"frobnicate(")).json()
    assert problem["line"] == 6
    assert problem["column"] > 1


def test_a_file_over_the_limit_is_refused_and_the_limit_named(owner: User, settings: Any) -> None:
    settings.UPLOAD_LIMIT_BYTES = 100
    response = upload(owner, SMALL_HLO)
    assert (response.status_code, response.json()["code"]) == (413, "upload-too-big")
    assert "100" in response.json()["detail"]
    assert stored() == []


def test_a_good_upload_is_stored_once_by_its_hash(owner: User, stranger: User, sent: list[Any]) -> None:
    first = upload(owner, SMALL_HLO).json()
    second = upload(stranger, SMALL_HLO).json()
    assert first["state"] == "scheduling"
    assert first["sha256"] == second["sha256"]
    assert [path.name for path in stored()] == [first["sha256"]]
    for user, made, left in ((owner, first, 1), (stranger, second, 0)):
        client = client_of(user)
        assert client.delete(f"/api/graphs/{made['id']}", headers=csrf(client)).status_code == 204
        assert len(stored()) == left


@pytest.mark.parametrize(
    ("name", "kept"),
    [("../../etc/x.hlo", "x.hlo"), ("a\x00b\nc.hlo", "abc.hlo"), ("<img src=x>.hlo", "<img src=x>.hlo")],
)
def test_a_files_name_is_only_text(name: str, kept: str) -> None:
    assert actions.upload_name(name) == kept


def test_the_quota_holds(owner: User) -> None:
    User.objects.update(quota_bytes=len(SMALL_HLO) + 10)
    assert upload(owner, SMALL_HLO).status_code == 201
    refused = upload(owner, SMALL_HLO)
    assert (refused.status_code, refused.json()["code"]) == (409, "storage-quota")


def test_a_full_disk_is_said(owner: User, settings: Any) -> None:
    settings.FREE_DISK_BYTES = 1 << 60
    response = upload(owner, SMALL_HLO)
    assert (response.status_code, response.json()["code"]) == (507, "disk-full")
    assert stored() == []


def test_it_becomes_ready_and_can_be_looked_at(owner: User) -> None:
    made = upload(owner, SMALL_HLO).json()
    preparation.prepare(graph_leases.claim(made["id"], "test/1"))
    client = client_of(owner)
    graph = client.get(f"/api/graphs/{made['id']}").json()
    assert (graph["state"], graph["instructions"], graph["error"]) == ("ready", 4, None)
    assert graph["suggested"]["capacity"] < graph["peak_bytes"] or graph["steps"] == 1
    for view in ("source", "scheduled"):
        document = client.get(f"/api/graphs/{made['id']}/document?view={view}").json()
        assert document["version"] == 1
        name = document["nodes"]["id"][0]
        node = client.get(f"/api/graphs/{made['id']}/nodes/{view}/{name}")
        assert node.json()["name"] == document["nodes"]["name"][0]
        assert name in node.json()["line"]
    program = client.get(f"/api/graphs/{made['id']}/program").json()
    assert len(program["steps"]["name"]) == graph["steps"]
    assert len(program["buffers"]["size"]) == graph["buffers"]
    assert client.get(f"/api/graphs/{made['id']}/nodes/source/nothing").status_code == 404
    file = client.get(f"/api/graphs/{made['id']}/file")
    assert file.status_code == 200


@pytest.mark.slow
def test_it_is_priced(owner: User) -> None:
    made = upload(owner, SMALL_HLO).json()
    preparation.prepare(graph_leases.claim(made["id"], "test/1"))
    client = client_of(owner)
    whole = client.get(f"/api/graphs/{made['id']}/preview?device=tpu-v4").json()
    assert whole["fits"]
    assert 0 < whole["lower_bound_ps"] <= whole["greedy_ps"] <= whole["all_slow_ps"]
    small = client.get(f"/api/graphs/{made['id']}/preview?device=tpu-v4&capacity={whole['suggested_capacity']}").json()
    assert not small["fits"]
    unknown = client.get(f"/api/graphs/{made['id']}/preview?device=abacus")
    assert (unknown.status_code, unknown.json()["code"]) == (422, "device-name")


def test_a_module_that_cannot_be_prepared_says_why(owner: User, settings: Any) -> None:
    graph = actions.store(b"HloModule broken\n", owner=owner, name="broken.hlo")
    preparation.prepare(graph_leases.claim(graph.pk, "test/1"))
    graph.refresh_from_db()
    assert graph.state == "failed"
    assert graph.error["code"] and graph.error["message"]
    client = client_of(owner)
    assert client.get(f"/api/graphs/{graph.pk}/document").json()["code"] == "graph-failed"


def test_only_one_worker_prepares_a_module_and_a_lost_one_is_replaced(owner: User) -> None:
    graph = actions.store(SMALL_HLO, owner=owner, name="small.hlo")
    first = graph_leases.claim(graph.pk, "test/1")
    assert first is not None
    assert graph_leases.claim(graph.pk, "test/2") is None
    Graph.objects.update(lease_until="2000-01-01T00:00:00Z")
    assert graph_leases.take_away_expired() == 1
    second = graph_leases.claim(graph.pk, "test/2")
    assert second is not None and second.attempt == 2
    assert not graph_leases.renew(first)
    assert not graph_leases.settle(first, {"state": "ready"})
    assert graph_leases.settle(second, {"state": "ready"})


def test_an_example_can_be_copied(owner: User) -> None:
    actions.store(SMALL_HLO, owner=None, name="small.hlo", example="small", title="Small")
    client = client_of(owner)
    made = client.post("/api/graphs", {"example": "small"}, headers=csrf(client))
    assert (made.status_code, made.json()["example"], made.json()["title"]) == (201, False, "Small")
    assert client.post("/api/graphs", {"example": "none"}, headers=csrf(client)).status_code == 404
    assert client.post("/api/graphs", {}, headers=csrf(client)).status_code == 422


async def test_a_body_over_the_limit_is_refused_before_it_is_read(settings: Any) -> None:
    settings.REQUEST_LIMIT_BYTES = 1000
    scope = {"type": "http", "method": "POST", "path": "/api/graphs", "query_string": b"", "http_version": "1.1"}
    announced = ApplicationCommunicator(application, scope | {"headers": [(b"content-length", b"1001")]})
    assert (await announced.receive_output(timeout=10))["status"] == 413
    chunked = ApplicationCommunicator(application, scope | {"headers": [(b"host", b"localhost")]})
    for _ in range(3):
        await chunked.send_input({"type": "http.request", "body": b"x" * 400, "more_body": True})
    assert (await chunked.receive_output(timeout=10))["status"] == 413


def test_the_examples_are_real_and_name_their_origin() -> None:
    entries = json.loads((FOLDER / "examples.json").read_text())["examples"]
    assert {entry["file"] for entry in entries} == {path.name for path in FOLDER.glob("*.gz")}
    for entry in entries:
        assert "Apache-2.0" in entry["provenance"]
        assert gzip.open(io.BytesIO((FOLDER / entry["file"]).read_bytes())).read(9) == b"HloModule"
    assert seed() == len(entries)
    assert seed() == 0
    assert default_storage.exists(Graph.objects.filter(example=entries[0]["name"]).get().blob.file)
