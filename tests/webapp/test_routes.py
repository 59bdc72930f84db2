"""Who may call what: every registered route, as nobody, as a stranger, and as the owner."""

from __future__ import annotations

import gzip
import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import get_resolver

from tests.webapp.conftest import PASSWORD, SMALL_HLO, client_of, csrf
from webapp.accounts import actions as account_actions
from webapp.accounts.models import User
from webapp.api import api
from webapp.graphs.models import Graph, Preview
from webapp.graphs.selectors import preview_key
from webapp.runs.models import Artifact, Run

# (method, path): (anonymous, stranger, owner). A stranger gets 404 wherever an object's id is in the path.
TABLE: dict[tuple[str, str], tuple[int, int, int]] = {
    ("GET", "/api/session"): (200, 200, 200),
    ("POST", "/api/login"): (200, 200, 200),
    ("POST", "/api/login/local"): (403, 403, 403),  # not bound to loopback in tests
    ("POST", "/api/logout"): (401, 204, 204),
    ("POST", "/api/password"): (401, 204, 204),
    ("GET", "/api/keys"): (401, 200, 200),
    ("POST", "/api/keys"): (401, 201, 201),
    ("DELETE", "/api/keys/{key_id}"): (401, 404, 204),
    ("GET", "/api/devices"): (401, 200, 200),
    ("GET", "/api/methods"): (401, 200, 200),
    ("GET", "/api/graphs"): (401, 200, 200),
    ("POST", "/api/graphs"): (401, 201, 201),
    ("GET", "/api/graphs/{graph_id}"): (401, 404, 200),
    ("DELETE", "/api/graphs/{graph_id}"): (401, 404, 409),  # a run uses it
    ("GET", "/api/graphs/{graph_id}/document"): (401, 404, 200),
    ("GET", "/api/graphs/{graph_id}/program"): (401, 404, 200),
    ("GET", "/api/graphs/{graph_id}/nodes/{view}/{name}"): (401, 404, 200),
    ("GET", "/api/graphs/{graph_id}/preview"): (401, 404, 200),
    ("GET", "/api/graphs/{graph_id}/file"): (401, 404, 200),
    ("GET", "/api/runs"): (401, 200, 200),
    ("POST", "/api/runs"): (401, 404, 201),
    ("GET", "/api/runs/{run_id}"): (401, 404, 200),
    ("DELETE", "/api/runs/{run_id}"): (401, 404, 204),
    ("POST", "/api/runs/{run_id}/stop"): (401, 404, 200),
    ("POST", "/api/runs/{run_id}/resume"): (401, 404, 409),  # it waits
    ("POST", "/api/runs/{run_id}/again"): (401, 404, 201),
    ("POST", "/api/runs/{run_id}/move"): (401, 404, 200),
    ("GET", "/api/runs/{run_id}/events"): (401, 404, 200),
    ("GET", "/api/runs/{run_id}/artifacts/{name}"): (401, 404, 200),
    ("GET", "/api/runs/{run_id}/archive"): (401, 404, 200),
}
# Addresses outside of the API: (anonymous, owner).
PAGES = {
    "healthz": ("/healthz", 503, 503),  # no workers in this test
    "api/": None,  # the table above
    "^api/(?P<path>.*)$": ("/api/nothing", 404, 404),
    "admin/": ("/admin/", 302, 302),  # to the admin's login: the owner is no administrator
    r"^(?!static/|ws/|admin/)(?P<path>.*)$": ("/runs/17", None, None),  # 200 or, without a built page, 503
}


def api_routes() -> Iterator[tuple[str, str]]:
    """List all operations of the API."""
    for prefix, router in api._routers:
        for path, view in router.path_operations.items():
            for operation in view.operations:
                full = f"/api{prefix}{path}".replace("{path:", "{")
                yield from ((method, full) for method in operation.methods)


def test_every_route_is_in_the_table() -> None:
    assert set(api_routes()) == set(TABLE)


def test_every_address_outside_of_the_api_is_in_the_table() -> None:
    found = {str(entry.pattern) for entry in get_resolver().url_patterns}
    assert found == set(PAGES)


@pytest.fixture
def world(owner: User, graph: Graph, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """One of everything, of the owner's."""
    run = make_run()
    for kind in ("source", "scheduled", "program"):
        default_storage.save(f"{graph.folder}/{kind}.json.gz", ContentFile(gzip.compress(b"{}")))
    default_storage.save(f"{run.folder}/artifacts/1/mapping.json", ContentFile(b"{}"))
    Artifact.objects.create(
        run=run, name="mapping.json", file=f"{run.folder}/artifacts/1/mapping.json", bytes=2, sha256=""
    )
    prices = ("all_slow_ps", "lower_bound_ps", "greedy_ps", "capacity_bytes", "peak_bytes", "suggested_capacity")
    data = {"fits": True} | dict.fromkeys(prices, 1)
    Preview.objects.create(graph=graph, key=preview_key("tpu-v4", None, None), data=data)
    node = dict.fromkeys(("name", "op", "computation", "shape", "line"), "x") | {
        "root": True,
        "layout": None,
        "step": 0,
    }
    node |= dict.fromkeys(("operands", "users", "calls"), []) | {
        "attributes": {},
        "metadata": {},
        "bytes": 4,
        "flops": 1,
    }
    monkeypatch.setattr("webapp.graphs.previews.node", lambda *args, **kwargs: node)
    key, _ = account_actions.create_key(owner, name="script")
    return {
        "key_id": key.pk,
        "graph_id": graph.pk,
        "run_id": run.pk,
        "view": "source",
        "name": "mapping.json",
    }


def call(client: Client, method: str, path: str, world: dict[str, Any], *, token: dict[str, str]) -> int:
    """Call a route with a body that it can take."""
    bodies: dict[str, Any] = {
        "/api/login": {"username": "olive", "password": PASSWORD},
        "/api/password": {"current": PASSWORD, "new": "another long pass phrase"},
        "/api/keys": {"name": "mine"},
        "/api/runs": {
            "graph": str(world["graph_id"]),
            "device": "tpu-v4",
            "settings": {"method": "greedy"},
            "budget": {"evaluations": 5},
        },
        "/api/runs/{run_id}/move": {"before": None},
    }
    address = path.format(**world)
    if (method, path) == ("POST", "/api/graphs"):
        data: dict[str, Any] = {"file": SimpleUploadedFile("small.hlo", SMALL_HLO)}
        return client.post(address, data, headers=token).status_code
    if method == "POST":
        body = json.dumps(bodies[path]) if path in bodies else ""
        return client.post(address, body, content_type="application/json", headers=token).status_code
    return client.generic(method, address, headers=token).status_code


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
@pytest.mark.parametrize(("method", "path"), sorted(TABLE))
def test_each_route_lets_in_whom_it_should(
    method: str, path: str, world: dict[str, Any], owner: User, stranger: User
) -> None:
    wanted = TABLE[method, path]
    got = []
    for user in (None, stranger, owner):
        client = client_of(user)
        got.append(call(client, method, path, world, token=csrf(client)))
    assert tuple(got) == wanted


@pytest.mark.parametrize(("method", "path"), sorted(route for route in TABLE if route[0] != "GET"))
def test_each_change_needs_a_csrf_token(method: str, path: str, world: dict[str, Any], owner: User) -> None:
    client = client_of(owner)
    assert call(client, method, path, world, token={}) == 403
    assert Run.objects.count() == 1 and Graph.objects.count() == 1


@pytest.mark.parametrize(("method", "path"), sorted(TABLE))
def test_each_route_refuses_a_foreign_host(method: str, path: str, world: dict[str, Any], owner: User) -> None:
    client = client_of(owner)
    assert call(client, method, path, world, token=csrf(client) | {"host": "evil.example"}) == 400


@pytest.mark.parametrize(("method", "path"), sorted(route for route in TABLE if route[0] != "GET"))
def test_each_change_refuses_a_foreign_origin(method: str, path: str, world: dict[str, Any], owner: User) -> None:
    client = client_of(owner)
    assert call(client, method, path, world, token=csrf(client) | {"origin": "http://evil.example"}) == 403


# For a person, not for a script.
KEYLESS = ("/api/session", "/api/login", "/api/login/local", "/api/logout", "/api/password", "/api/keys")


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
@pytest.mark.parametrize(("method", "path"), sorted(route for route in TABLE if not route[1].startswith(KEYLESS)))
def test_a_key_opens_what_its_owner_may_open_without_a_csrf_token(
    method: str, path: str, world: dict[str, Any], owner: User, stranger: User
) -> None:
    for user, wanted in ((stranger, TABLE[method, path][1]), (owner, TABLE[method, path][2])):
        _, token = account_actions.create_key(user, name="key")
        client = client_of(None)
        assert call(client, method, path, world, token={"authorization": f"Bearer {token}"}) == wanted


def test_a_key_cannot_make_keys(owner: User) -> None:
    _, token = account_actions.create_key(owner, name="key")
    response = client_of(None).post(
        "/api/keys", '{"name": "more"}', content_type="application/json", headers={"authorization": f"Bearer {token}"}
    )
    assert response.status_code == 401


def test_a_wrong_key_is_refused_even_with_a_session(owner: User) -> None:
    client = client_of(owner)
    assert client.get("/api/runs", headers={"authorization": "Bearer gs_00000000_nonsense"}).status_code == 401


@pytest.mark.parametrize("name", [name for name, entry in PAGES.items() if entry])
def test_addresses_outside_of_the_api(name: str, owner: User, monkeypatch: pytest.MonkeyPatch) -> None:
    address, anonymous, signed_in = PAGES[name]
    for user, wanted in ((None, anonymous), (owner, signed_in)):
        status = client_of(user).get(address).status_code
        assert status in ((200, 503) if wanted is None else (wanted,))


def test_examples_are_for_everybody_to_read_and_nobody_to_delete(owner: User, stranger: User, graph: Graph) -> None:
    Graph.objects.filter(pk=graph.pk).update(owner=None, example="small")
    for user in (owner, stranger):
        client = client_of(user)
        assert client.get(f"/api/graphs/{graph.pk}").json()["example"] is True
        assert client.delete(f"/api/graphs/{graph.pk}", headers=csrf(client)).status_code == 403
    assert client_of(None).get(f"/api/graphs/{graph.pk}").status_code == 401


def test_what_does_not_exist_looks_like_what_is_not_yours(owner: User, stranger: User, graph: Graph) -> None:
    missing = client_of(stranger).get(f"/api/graphs/{uuid.uuid4()}")
    foreign = client_of(stranger).get(f"/api/graphs/{graph.pk}")
    assert missing.status_code == foreign.status_code == 404
    assert missing.json() == foreign.json()


@pytest.mark.parametrize("address", ["/api/session", "/healthz", "/", "/admin/login/"])
def test_every_answer_has_the_security_headers(address: str, db: None) -> None:
    response = client_of(None).get(address)
    assert "default-src 'none'" in response["Content-Security-Policy"]
    assert "script-src 'self'" in response["Content-Security-Policy"]
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["X-Frame-Options"] == "DENY"
    assert response["Referrer-Policy"] == "same-origin"


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume asynchronous iterators")
@pytest.mark.parametrize(
    "path", ["/api/graphs/{graph_id}/file", "/api/runs/{run_id}/archive", "/api/runs/{run_id}/artifacts/{name}"]
)
def test_downloads_are_attachments_that_nothing_may_run(path: str, world: dict[str, Any], owner: User) -> None:
    response = client_of(owner).get(path.format(**world))
    assert response["Content-Disposition"].startswith("attachment;")
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert response["Content-Type"] in ("application/octet-stream", "application/zip")


def test_documents_are_sent_zipped_and_once(world: dict[str, Any], owner: User) -> None:
    client = client_of(owner)
    address = f"/api/graphs/{world['graph_id']}/program"
    zipped = client.get(address, headers={"accept-encoding": "gzip"})
    assert zipped["Content-Encoding"] == "gzip"
    plain = client.get(address)
    assert plain.content == b"{}" and "Content-Encoding" not in plain
    again = client.get(address, headers={"if-none-match": plain["ETag"]})
    assert again.status_code == 304
