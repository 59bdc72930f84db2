"""What the runs' routes take and give, and the frames of the socket."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import ConfigDict, Field

from search.engine import Budget
from webapp.graphs.schemas import ErrorOut

RunState = Literal["queued", "running", "stopping", "stopped", "finished", "failed"]
EventKind = Literal["state", "started", "progress", "best", "checkpoint", "log", "error", "finished"]


class MethodOut(Schema):
    method: str
    title: str
    summary: str
    settings_schema: dict[str, Any] = Field(alias="schema", description="JSON Schema of the method's settings")
    defaults: dict[str, Any]


class RunIn(Schema):
    model_config = ConfigDict(extra="forbid")

    graph: UUID
    device: str | None = Field(default=None, max_length=64, description="A device's name; empty with `device_toml`")
    device_toml: str | None = Field(default=None, max_length=20_000, description="A device of your own")
    capacity: int | None = Field(default=None, ge=1, le=2**50, description="Bytes of fast memory; empty: the device's")
    settings: dict[str, Any] = Field(description="Settings of a method; its `method` field says which")
    budget: Budget
    seed: int = Field(default=0, ge=0, le=2**32 - 1)


class ArtifactOut(Schema):
    name: str
    bytes: int
    sha256: str
    url: str


class RunOut(Schema):
    id: UUID
    graph: UUID
    graph_name: str
    owner: str
    again_of: UUID | None
    state: RunState
    reason: str
    position: int | None = Field(description="Place in the queue, from 1; only while queued")
    attempt: int
    method: str
    settings: dict[str, Any]
    budget: Budget
    seed: int
    version: str
    device: str
    device_toml: str | None
    capacity: int | None
    baselines: dict[str, int] = Field(description="Picoseconds of each baseline")
    bound: int | None
    fits: bool | None
    best: int | None
    step: int
    evaluations: int
    seconds: float
    evaluations_per_second: float | None
    seconds_left: float | None
    last_seq: int
    resumable: bool
    bytes: int
    artifacts: list[ArtifactOut]
    error: ErrorOut | None
    created: datetime
    started: datetime | None
    finished: datetime | None


class RunPage(Schema):
    items: list[RunOut]
    next: str | None


class MoveIn(Schema):
    before: UUID | None = Field(default=None, description="One of your queued runs; empty: to the end")


class EventOut(Schema):
    seq: int
    kind: EventKind
    data: dict[str, Any]
    created: datetime


class EventPage(Schema):
    items: list[EventOut]
    last_seq: int


class MapColumns(Schema):
    """Residencies in fast memory as columns; see the mapping's documented schema."""

    buffer: list[int]
    offset: list[int]
    start: list[int]
    ready: list[int]
    end: list[int]
    prefetched: list[bool]
    evict: list[int]


class StateData(Schema):
    state: RunState
    attempt: int
    reason: str = ""


class StartedData(Schema):
    baselines: dict[str, int]
    bound: int
    fits: bool


class ProgressData(Schema):
    step: list[int]
    evaluations: list[int]
    seconds: list[float]
    best: list[int]
    metrics: dict[str, list[float | None]]


class BestData(Schema):
    step: int
    evaluations: int
    latency_ps: int
    map: MapColumns


class CheckpointData(Schema):
    step: int
    evaluations: int
    sha256: str


class LogData(Schema):
    message: str


class ErrorData(Schema):
    code: str
    message: str


class FinishedData(Schema):
    reason: str
    step: int
    evaluations: int
    seconds: float
    latency_ps: int
    artifacts: list[str]


class StateFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["state"]
    data: StateData


class StartedFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["started"]
    data: StartedData


class ProgressFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["progress"]
    data: ProgressData


class BestFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["best"]
    data: BestData


class CheckpointFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["checkpoint"]
    data: CheckpointData


class LogFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["log"]
    data: LogData


class ErrorFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["error"]
    data: ErrorData


class FinishedFrame(Schema):
    v: Literal[1]
    run: UUID
    seq: int
    kind: Literal["finished"]
    data: FinishedData


class SubscribedFrame(Schema):
    """The subscription holds; `last_seq` is where the log stands."""

    kind: Literal["subscribed"]
    run: UUID
    last_seq: int


class ResetFrame(Schema):
    """Too far behind: read the run again and subscribe after its `last_seq`."""

    kind: Literal["reset"]
    run: UUID
    last_seq: int


class DeniedFrame(Schema):
    kind: Literal["denied"]
    run: str


class HeartbeatFrame(Schema):
    kind: Literal["heartbeat"]
    time: datetime


class SubscribeIn(Schema):
    type: Literal["subscribe"]
    run: UUID
    after: int = Field(default=0, ge=0)


class UnsubscribeIn(Schema):
    type: Literal["unsubscribe"]
    run: UUID


class SocketOut(Schema):
    """Every frame of /ws/events; this schema is published for typed clients."""

    frame: (
        StateFrame
        | StartedFrame
        | ProgressFrame
        | BestFrame
        | CheckpointFrame
        | LogFrame
        | ErrorFrame
        | FinishedFrame
        | SubscribedFrame
        | ResetFrame
        | DeniedFrame
        | HeartbeatFrame
    )
    command: SubscribeIn | UnsubscribeIn
