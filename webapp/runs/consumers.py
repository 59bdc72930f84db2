"""The socket /ws/events: each watched run's log, in order, from wherever the page has it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from channels.consumer import AsyncConsumer
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.layers import get_channel_layer
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from pydantic import TypeAdapter, ValidationError

from webapp import doorbell
from webapp.accounts.selectors import session_group
from webapp.accounts.sockets import NOT_SIGNED_IN, Visitor
from webapp.runs import events, selectors
from webapp.runs.schemas import SubscribeIn, UnsubscribeIn

log = logging.getLogger("graphsmith.sockets")

POLL_SECONDS = 2.0  # what a lost doorbell costs
HEARTBEAT_SECONDS = 15.0
SEND_SECONDS = 10.0  # a client that takes longer is dropped; it comes back with its last number
PAGE = 500
FAR_BEHIND = 5000
MAX_SUBSCRIPTIONS = 64
MAX_MESSAGE_BYTES = 4096
UNSUPPORTED = 4400

COMMAND: TypeAdapter[SubscribeIn | UnsubscribeIn] = TypeAdapter(SubscribeIn | UnsubscribeIn)


@dataclass(slots=True)
class Subscription:
    """How far one run's log has been sent."""

    cursor: int


class TooSlow(Exception):
    """The client does not read."""


class Bell:
    """Hears the doorbells of some groups; deaf while the broker is away, which costs the poll's two seconds."""

    def __init__(self) -> None:
        self.rung = asyncio.Event()
        self.ended = False  # the session's end was announced
        self.wanted: set[str] = set()
        self._joined: set[str] = set()
        self._channel: str | None = None

    async def join(self) -> None:
        """Join the wanted groups that are not joined yet; being refused is no error."""
        layer = get_channel_layer()
        try:
            async with asyncio.timeout(POLL_SECONDS):
                if self._channel is None:
                    self._channel = await layer.new_channel()
                for group in self._joined - self.wanted:
                    await layer.group_discard(group, self._channel)
                    self._joined.discard(group)
                for group in self.wanted - self._joined:
                    await layer.group_add(group, self._channel)
                    self._joined.add(group)
        except Exception as error:  # Whatever the broker's client raises: the poll goes on.
            log.debug("no doorbell: %r", error)

    async def listen(self) -> None:
        """Wait for doorbells for ever."""
        layer = get_channel_layer()
        while True:
            if self._channel is None:
                await asyncio.sleep(POLL_SECONDS / 4)
                continue
            try:
                message = await layer.receive(self._channel)
            except asyncio.CancelledError:
                raise
            except Exception as error:  # As above.
                log.debug("no doorbell: %r", error)
                await asyncio.sleep(POLL_SECONDS)
                continue
            self.ended |= message["type"] == "session.ended"
            self.rung.set()

    async def leave(self) -> None:
        """Leave all groups."""
        self.wanted = set()
        await self.join()


class EventsConsumer(AsyncConsumer):
    """One page's socket. It reads the log itself; a doorbell only says when."""

    # Without a layer of its own: the consumer would not even connect while the broker is away.
    channel_layer_alias = "none"

    async def __call__(
        self,
        scope: dict[str, Any],
        receive: Callable[[], Awaitable[dict[str, Any]]],
        send: Callable[[dict[str, Any]], Awaitable[None]],
    ) -> None:
        self.visitor: Visitor = scope["visitor"]
        self.bell = Bell()
        self.subscriptions: dict[UUID, Subscription] = {}
        self.sending = asyncio.Lock()
        talk = asyncio.ensure_future(super().__call__(scope, receive, send))
        tasks = [talk]
        try:
            await self.accepted(talk)
            tasks += [asyncio.ensure_future(work()) for work in (self.pump, self.bell.listen)]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                with contextlib.suppress(TooSlow, StopConsumer):
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.bell.leave()

    async def accepted(self, talk: asyncio.Future[None]) -> None:
        """Wait until the handshake is answered."""
        self.open = asyncio.Event()
        opened = asyncio.ensure_future(self.open.wait())
        await asyncio.wait([talk, opened], return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()

    async def websocket_connect(self, message: dict[str, Any]) -> None:
        if self.visitor.session_key is not None:
            self.bell.wanted.add(session_group(self.visitor.session_key))
        await self.bell.join()
        await self.send({"type": "websocket.accept"})
        self.open.set()

    async def websocket_disconnect(self, message: dict[str, Any]) -> None:
        raise StopConsumer

    async def websocket_receive(self, message: dict[str, Any]) -> None:
        text = message.get("text") or ""
        try:
            if not text or len(text) > MAX_MESSAGE_BYTES:
                raise ValueError("not a command")
            command = COMMAND.validate_json(text)
        except (ValidationError, ValueError):
            await self.close(UNSUPPORTED)
            return
        if isinstance(command, UnsubscribeIn):
            self.subscriptions.pop(command.run, None)
            self.bell.wanted.discard(doorbell.run_group(command.run))
            await self.bell.join()
            return
        last = await self.last_seq(command.run)
        if last is None or len(self.subscriptions) >= MAX_SUBSCRIPTIONS:
            await self.frame({"kind": "denied", "run": command.run})
            return
        # Joined before the first read: an event that comes in between is read or rung for, or both.
        self.bell.wanted.add(doorbell.run_group(command.run))
        await self.bell.join()
        await self.frame({"kind": "subscribed", "run": command.run, "last_seq": last})
        self.subscriptions[command.run] = Subscription(cursor=command.after)
        self.bell.rung.set()

    async def pump(self) -> None:
        """Send what is new in every watched log, whenever the bell rings or two seconds are over."""
        beat_at = asyncio.get_running_loop().time() + HEARTBEAT_SECONDS
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self.bell.rung.wait()
            self.bell.rung.clear()
            if self.bell.ended:
                await self.close(NOT_SIGNED_IN)
            for run_id, subscription in list(self.subscriptions.items()):
                await self.send_log(run_id, subscription)
            now = asyncio.get_running_loop().time()
            if now >= beat_at:
                beat_at = now + HEARTBEAT_SECONDS
                if not await database_sync_to_async(self.visitor.still_here)():
                    await self.close(NOT_SIGNED_IN)
                await self.frame({"kind": "heartbeat", "time": timezone.now()})
                await self.bell.join()

    async def send_log(self, run_id: UUID, subscription: Subscription) -> None:
        """Send one run's events after the cursor, a page at a time."""
        last = await self.last_seq(run_id)
        if last is None:
            self.subscriptions.pop(run_id, None)
            await self.frame({"kind": "denied", "run": run_id})
            return
        if last - subscription.cursor > FAR_BEHIND or subscription.cursor > last:
            subscription.cursor = last
            await self.frame({"kind": "reset", "run": run_id, "last_seq": last})
            return
        while subscription.cursor < last:
            page = await self.read(run_id, subscription.cursor)
            for event in page:
                if self.subscriptions.get(run_id) is not subscription:
                    return  # Unsubscribed, or subscribed anew from elsewhere, while this page was being sent.
                await self.frame({"v": 1, "run": run_id, "seq": event.seq, "kind": event.kind, "data": event.data})
                subscription.cursor = event.seq
            if len(page) < PAGE:
                return

    @database_sync_to_async
    def last_seq(self, run_id: UUID) -> int | None:
        """Say where a run's log stands, if the visitor may see it."""
        return selectors.runs_visible_to(self.visitor.user).filter(pk=run_id).values_list("last_seq", flat=True).first()

    @database_sync_to_async
    def read(self, run_id: UUID, cursor: int) -> list[Any]:
        """Read a page of a log."""
        return list(events.after(run_id, cursor, limit=PAGE))

    async def frame(self, frame: dict[str, Any]) -> None:
        """Send one frame; a client that does not take it in time is dropped."""
        text = json.dumps(frame, cls=DjangoJSONEncoder, separators=(",", ":"))
        try:
            async with self.sending, asyncio.timeout(SEND_SECONDS):
                await self.send({"type": "websocket.send", "text": text})
        except TimeoutError as error:
            raise TooSlow from error

    async def close(self, code: int) -> None:
        """Close the socket and end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SEND_SECONDS):
                await self.send({"type": "websocket.close", "code": code})
        raise StopConsumer
