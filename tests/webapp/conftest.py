"""Three people (owner, stranger, administrator), a module that is ready, and files in a temporary folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.files.storage import default_storage
from django.test import Client

from accelsim.program import Program
from webapp.accounts.models import User
from webapp.graphs import actions as graph_actions
from webapp.graphs.models import Graph
from webapp.runs.models import Run

PASSWORD = "correct horse battery staple"
PROTOCOL_SEARCH = Path(__file__).parent / "protocol_search.py"
SMALL_HLO = b"""HloModule small

ENTRY main {
  a = f32[256,256] parameter(0)
  b = f32[256,256] parameter(1)
  product = f32[256,256] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sum = f32[256,256] add(product, a)
}
"""


@pytest.fixture(autouse=True)
def _quiet_home(settings: Any, tmp_path: Path) -> None:
    """Keep files in a temporary folder, messages at home, and the doorbell in memory."""
    settings.MEDIA_ROOT = tmp_path / "files"
    location = {"location": str(settings.MEDIA_ROOT)}
    storages = settings.STORAGES
    settings.STORAGES = storages | {
        "default": storages["default"] | {"OPTIONS": storages["default"]["OPTIONS"] | location}
    }
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    settings.FREE_DISK_BYTES = 0
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...]]]:
    """Collect messages instead of sending them."""
    messages: list[tuple[str, tuple[Any, ...]]] = []

    def send(task: Any, *arguments: Any) -> bool:
        messages.append((task.name, arguments))
        return True

    monkeypatch.setattr("webapp.messages.send", send)
    return messages


@pytest.fixture
def owner(db: None) -> User:
    return User.objects.create_user("olive", password=PASSWORD)


@pytest.fixture
def stranger(db: None) -> User:
    return User.objects.create_user("stan", password=PASSWORD)


def client_of(user: User | None) -> Client:
    """Make a client that enforces CSRF, signed in as the user."""
    client = Client(enforce_csrf_checks=True, headers={"host": "localhost"})
    if user is not None:
        client.force_login(user)
    return client


def csrf(client: Client) -> dict[str, str]:
    """Fetch the token and give the header that carries it."""
    client.get("/api/session")
    return {"X-CSRFToken": client.cookies["csrftoken"].value}


def post(client: Client, path: str, body: Any = None, **extra: str) -> Any:
    """POST JSON with a valid CSRF token."""
    data = "" if body is None else json.dumps(body)
    return client.post(path, data, content_type="application/json", headers=csrf(client) | extra)


@pytest.fixture
def graph(owner: User, sent: list[Any]) -> Graph:
    """A module of the owner's that is ready; its files are small but real."""
    found = graph_actions.store(SMALL_HLO, owner=owner, name="small.hlo", format="hlo-text")
    Graph.objects.filter(pk=found.pk).update(
        state=Graph.State.READY, steps=2, buffers=3, instructions=4, peak_bytes=1 << 20, schedule_source="list"
    )
    found.refresh_from_db()
    path = Path(default_storage.path(f"{found.folder}/program.npz"))
    path.parent.mkdir(parents=True)
    small_program().save(path)
    return found


def small_program() -> Program:
    """Two steps, three buffers."""
    size = 256 * 256 * 4
    return Program(
        name="small",
        step_name=("product", "sum"),
        step_opcode=("dot", "add"),
        step_computation=("main", "main"),
        step_flops=np.array([2 * 256**3, 256**2], np.int64),
        step_repeat=np.ones(2, np.int64),
        step_region=np.full(2, -1, np.int32),
        access_step=np.array([0, 0, 0, 1, 1, 1], np.int32),
        access_buffer=np.array([0, 1, 2, 2, 0, 3], np.int32),
        access_value=np.array([0, 1, 2, 2, 0, 3], np.int32),
        access_bytes=np.full(6, size, np.int64),
        access_write=np.array([0, 0, 1, 0, 0, 1], bool),
        access_operand=np.array([0, 1, -1, 0, 1, -1], np.int32),
        buffer_name=("a", "b", "product", "sum"),
        buffer_size=np.full(4, size, np.int64),
        buffer_start=np.array([0, 0, 0, 1], np.int32),
        buffer_end=np.array([2, 1, 2, 2], np.int32),
        buffer_input=np.array([1, 1, 0, 0], bool),
        buffer_output=np.array([0, 0, 0, 1], bool),
        value_name=("a", "b", "product", "sum"),
        value_buffer=np.arange(4, dtype=np.int32),
        value_start=np.array([0, 0, 0, 1], np.int32),
        value_end=np.array([2, 1, 2, 2], np.int32),
    )


@pytest.fixture
def make_run(graph: Graph, sent: list[Any]) -> Callable[..., Run]:
    """Make queued runs; `settings` go to the search as they are."""

    def make(*, owner: User | None = None, evaluations: int = 40, seed: int = 0, **settings: Any) -> Run:
        from webapp.runs import actions

        return actions._enqueue(
            Run(
                owner=owner or graph.owner,
                graph=graph,
                device="tpu-v4",
                settings={"method": "annealing"} | settings,
                budget={"evaluations": evaluations, "seconds": None, "target": None},
                seed=seed,
            )
        )

    return make


@pytest.fixture
def protocol_search(settings: Any) -> Iterator[None]:
    """Let supervisors start the small search of these tests."""
    settings.SEARCH_COMMAND = [sys.executable, str(PROTOCOL_SEARCH)]
    settings.EXECUTOR = "local"
    settings.CHECKPOINT_SECONDS = 0.1
    yield
    from webapp.runs.evaluators import evaluator

    evaluator().close()
    evaluator.cache_clear()


def check_log(run: Run) -> list[Any]:
    """Assert what every log must be: no gap, no double, values that only go on. Return the events."""
    events = list(run.events.order_by("seq"))
    assert [event.seq for event in events] == list(range(1, run.last_seq + 1))
    points = [
        point
        for event in events
        if event.kind == "progress"
        for point in zip(event.data["step"], event.data["evaluations"], strict=True)
    ]
    assert points == sorted(set(points))
    bests = [event.data["latency_ps"] for event in events if event.kind == "best"]
    assert bests == sorted(set(bests), reverse=True)
    assert sum(event.kind == "started" for event in events) <= 1
    checkpoints = [event.data["step"] for event in events if event.kind == "checkpoint"]
    assert checkpoints == sorted(set(checkpoints))
    return events
