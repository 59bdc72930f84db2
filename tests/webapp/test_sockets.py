"""The socket /ws/events: who may open it, what it sends, and that nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings as django_settings

from tests.webapp.conftest import client_of, post
from webapp.accounts import actions as account_actions
from webapp.accounts.models import User
from webapp.asgi import application
from webapp.runs import consumers, events
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)

HERE = {"origin": "http://localhost", "host": "localhost"}


class Socket(ApplicationCommunicator):
    """A WebSocket client without a network. (`channels.testing` has one, but imports daphne.)"""

    def __init__(self, path: str, headers: dict[str, str]) -> None:
        pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
        super().__init__(application, {"type": "websocket", "path": path, "query_string": b"", "headers": pairs})

    async def connect(self) -> bool:
        """Say whether the handshake is accepted."""
        await self.send_input({"type": "websocket.connect"})
        output = await self.receive_output(timeout=10)
        return output["type"] == "websocket.accept"

    async def say(self, text: str) -> None:
        await self.send_input({"type": "websocket.receive", "text": text})

    async def frame(self) -> dict[str, Any]:
        output = await self.receive_output(timeout=10)
        assert output["type"] == "websocket.send", output
        return json.loads(output["text"])

    async def disconnect(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(timeout=10)


def session_of(user: User) -> str:
    return f"{django_settings.SESSION_COOKIE_NAME}={client_of(user).cookies[django_settings.SESSION_COOKIE_NAME].value}"


def communicator(path: str = "/ws/events", **headers: str) -> Socket:
    return Socket(path, headers)


@asynccontextmanager
async def socket_of(user: User, **headers: str) -> AsyncIterator[Socket]:
    cookie = await sync_to_async(session_of)(user)
    socket = communicator(**HERE, cookie=cookie, **headers)
    connected = await socket.connect()
    assert connected
    try:
        yield socket
    finally:
        await socket.disconnect()


async def subscribe(socket: Socket, run: Run | uuid.UUID | str, after: int = 0) -> None:
    key = str(run.pk if isinstance(run, Run) else run)
    await socket.say(json.dumps({"type": "subscribe", "run": key, "after": after}))


async def frames(socket: Socket, count: int) -> list[dict[str, Any]]:
    return [await socket.frame() for _ in range(count)]


def log(run: Run, count: int) -> None:
    """Append events to a run's log."""
    for number in range(count):
        events.append(run.pk, [("log", {"message": f"line {number}"})], guard={}, changes={})


alog = sync_to_async(log)


@pytest.mark.parametrize(
    ("headers", "opens"),
    [
        ({"origin": "http://localhost"}, True),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "http://localhost:3000"}, False),  # another server on this machine
        ({"origin": "null"}, False),
        ({}, False),
        ({"origin": "http://evil.example", "host": "evil.example"}, False),
        ({"origin": "http://localhost", "cookie": ""}, False),
        ({"origin": "http://localhost", "cookie": "graphsmith_session=nonsense"}, False),
    ],
)
async def test_only_a_signed_in_page_of_this_server_may_open_it(
    headers: dict[str, str], opens: bool, owner: User
) -> None:
    cookie = await sync_to_async(session_of)(owner)
    socket = communicator(**{"host": "localhost", "cookie": cookie} | headers)
    connected = await socket.connect()
    assert connected == opens
    await socket.disconnect()


async def test_an_unknown_address_is_refused(owner: User) -> None:
    cookie = await sync_to_async(session_of)(owner)
    socket = communicator("/ws/else", **HERE, cookie=cookie)
    assert await socket.connect() is False


async def test_a_script_opens_it_with_its_key(owner: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    _, token = await sync_to_async(account_actions.create_key)(owner, name="script")
    socket = communicator(host="localhost", authorization=f"Bearer {token}")
    assert await socket.connect()
    await subscribe(socket, run)
    assert [frame["kind"] for frame in await frames(socket, 2)] == ["subscribed", "state"]
    await socket.disconnect()
    socket = communicator(host="localhost", authorization="Bearer gs_nonsense")
    assert await socket.connect() is False


async def test_a_stranger_is_denied_the_run(stranger: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    async with socket_of(stranger) as socket:
        for key in (run.pk, uuid.uuid4()):
            await subscribe(socket, key)
            assert await frames(socket, 1) == [{"kind": "denied", "run": str(key)}]
        await alog(run, 3)
        assert await socket.receive_nothing(timeout=0.3)


async def test_it_replays_the_log_and_goes_on_live(owner: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    await alog(run, 5)
    async with socket_of(owner) as socket:
        await subscribe(socket, run, after=2)
        first, *rest = await frames(socket, 5)
        assert first == {"kind": "subscribed", "run": str(run.pk), "last_seq": 6}
        assert [frame["seq"] for frame in rest] == [3, 4, 5, 6]
        assert rest[0] == {"v": 1, "run": str(run.pk), "seq": 3, "kind": "log", "data": {"message": "line 1"}}
        await alog(run, 3)
        assert [frame["seq"] for frame in await frames(socket, 3)] == [7, 8, 9]


async def test_a_lost_doorbell_costs_the_poll_and_no_event(
    owner: User, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    monkeypatch.setattr("webapp.doorbell.ring", lambda run_id: None)
    run = await sync_to_async(make_run)()
    async with socket_of(owner) as socket:
        await subscribe(socket, run)
        await frames(socket, 2)
        await alog(run, 3)
        assert [frame["seq"] for frame in await frames(socket, 3)] == [2, 3, 4]


async def test_a_broker_that_is_away_is_not_noticed(
    owner: User, make_run: Callable[..., Run], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.2)
    run = await sync_to_async(make_run)()
    settings.CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
            "CONFIG": {"hosts": ["unix:///nowhere/redis.sock"]},
        }
    }
    async with socket_of(owner) as socket:
        await subscribe(socket, run)
        await frames(socket, 2)
        await alog(run, 3)
        assert [frame["seq"] for frame in await frames(socket, 3)] == [2, 3, 4]


async def test_it_resets_whoever_is_far_behind(
    owner: User, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "FAR_BEHIND", 5)
    run = await sync_to_async(make_run)()
    await alog(run, 8)
    async with socket_of(owner) as socket:
        await subscribe(socket, run)
        assert (await frames(socket, 2))[1] == {"kind": "reset", "run": str(run.pk), "last_seq": 9}
        await alog(run, 1)
        assert [frame["seq"] for frame in await frames(socket, 1)] == [10]


async def test_a_page_from_the_future_is_reset(owner: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    async with socket_of(owner) as socket:
        await subscribe(socket, run, after=100)
        assert [frame["kind"] for frame in await frames(socket, 2)] == ["subscribed", "reset"]


async def test_reconnecting_every_few_events_loses_and_doubles_none(owner: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    writing = asyncio.ensure_future(alog(run, 60))
    seen: list[int] = []
    while len(seen) < 61:
        async with socket_of(owner) as socket:
            await subscribe(socket, run, after=len(seen))
            await frames(socket, 1)
            for _ in range(min(7, 61 - len(seen))):
                seen.append((await frames(socket, 1))[0]["seq"])
    await writing
    assert seen == list(range(1, 62))


async def test_an_unsubscribed_run_is_quiet(owner: User, make_run: Callable[..., Run]) -> None:
    run = await sync_to_async(make_run)()
    async with socket_of(owner) as socket:
        await subscribe(socket, run)
        await frames(socket, 2)
        await socket.say(json.dumps({"type": "unsubscribe", "run": str(run.pk)}))
        await alog(run, 2)
        assert await socket.receive_nothing(timeout=0.3)


async def test_a_deleted_run_is_denied(
    owner: User, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.1)
    run = await sync_to_async(make_run)()
    key = str(run.pk)
    async with socket_of(owner) as socket:
        await subscribe(socket, run)
        await frames(socket, 2)
        await sync_to_async(run.delete)()
        assert await frames(socket, 1) == [{"kind": "denied", "run": key}]


async def test_logout_closes_the_sessions_sockets(owner: User) -> None:
    client = await sync_to_async(client_of)(owner)
    cookie = f"{django_settings.SESSION_COOKIE_NAME}={client.cookies[django_settings.SESSION_COOKIE_NAME].value}"
    socket = communicator(**HERE, cookie=cookie)
    assert await socket.connect()
    response = await sync_to_async(post)(client, "/api/logout")
    assert response.status_code == 204
    assert await socket.receive_output(timeout=10) == {"type": "websocket.close", "code": 4401}


async def test_a_session_that_has_ended_unheard_is_closed_at_the_heartbeat(
    owner: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumers, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(consumers, "HEARTBEAT_SECONDS", 0.3)
    async with socket_of(owner) as socket:
        assert (await frames(socket, 1))[0]["kind"] == "heartbeat"
        await sync_to_async(User.objects.update)(is_active=False)
        while (output := await socket.receive_output(timeout=10))["type"] == "websocket.send":
            pass
        assert output == {"type": "websocket.close", "code": 4401}


@pytest.mark.parametrize("text", ["", "nonsense", "[]", '{"type": "steal"}', '{"type": "subscribe"}', "x" * 5000])
async def test_what_is_no_command_closes_the_socket(text: str, owner: User) -> None:
    async with socket_of(owner) as socket:
        await socket.say(text)
        assert await socket.receive_output(timeout=10) == {"type": "websocket.close", "code": 4400}
