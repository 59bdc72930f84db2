"""What the graphs' routes take and give."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from ninja import Schema
from pydantic import Field

GraphState = Literal["scheduling", "ready", "failed"]


class ErrorOut(Schema):
    code: str
    message: str
    line: int | None = None
    column: int | None = None


class SuggestedOut(Schema):
    device: str
    capacity: int = Field(description="Bytes of fast memory that leave something to search for")


class GraphOut(Schema):
    id: UUID
    name: str
    title: str
    example: bool
    example_name: str | None
    provenance: str
    state: GraphState
    error: ErrorOut | None
    notes: list[str]
    format: str
    bytes: int
    sha256: str
    created: datetime
    instructions: int | None
    steps: int | None
    buffers: int | None
    peak_bytes: int | None
    schedule_source: str | None = Field(description="xla-cpu, list, or input")
    suggested: SuggestedOut | None


class GraphPage(Schema):
    items: list[GraphOut]
    next: str | None


class NodesOut(Schema):
    """Nodes as columns: entry i of each list belongs to node i."""

    id: list[str]
    op: list[str]
    name: list[str]
    group: list[int]
    shape: list[str]
    bytes: list[int]
    flops: list[int]


class EdgesOut(Schema):
    """Edges as columns; `source` and `target` are node indices."""

    source: list[int]
    target: list[int]
    sourcePort: list[int]
    targetPort: list[int]


class GroupsOut(Schema):
    """Groups as columns; `parent` is a group index or -1, `caller` a node index or -1."""

    id: list[str]
    name: list[str]
    parent: list[int]
    kind: list[str]
    caller: list[int]


class CallsOut(Schema):
    """Calls as columns: node `node[i]` calls group `group[i]`."""

    node: list[int]
    group: list[int]


class DocumentOut(Schema):
    version: int
    kind: str
    name: str
    entry: int = Field(description="The entry computation's group")
    nodes: NodesOut
    edges: EdgesOut
    groups: GroupsOut
    calls: CallsOut


class NeighbourOut(Schema):
    name: str
    op: str
    shape: str


class NodeOut(Schema):
    """One node with all that the module says about it."""

    name: str
    op: str
    computation: str
    root: bool
    shape: str
    layout: dict[str, Any] | None
    bytes: int
    flops: int
    step: int | None
    operands: list[NeighbourOut]
    users: list[NeighbourOut]
    calls: list[str]
    attributes: dict[str, Any]
    metadata: dict[str, Any]
    line: str | None = Field(description="The instruction as XLA prints it")


class StepColumns(Schema):
    name: list[str]
    opcode: list[str]
    region: list[int]
    repeat: list[int]
    computation: list[str]


class BufferColumns(Schema):
    name: list[str]
    size: list[int]
    start: list[int]
    end: list[int]
    input: list[bool]
    output: list[bool]


class ProgramOut(Schema):
    """The scheduled program for the memory map, as columns. Live ranges are half-open steps."""

    name: str
    steps: StepColumns
    buffers: BufferColumns


class PreviewOut(Schema):
    """What the module costs before any search; times in picoseconds, sizes in bytes."""

    fits: bool
    all_slow_ps: int
    lower_bound_ps: int
    greedy_ps: int
    capacity_bytes: int
    peak_bytes: int
    suggested_capacity: int


class DeviceOut(Schema):
    name: str
    title: str
    flops_per_second: int
    slow_bytes_per_second: int
    fast_read_bytes_per_second: int
    fast_write_bytes_per_second: int
    dma_bytes_per_second: int
    dma_latency_ps: int
    capacity_bytes: int
    alignment_bytes: int
    memory_space: int
    sources: dict[str, str]
    toml: str = Field(description="The device as TOML: a start for one of your own")
