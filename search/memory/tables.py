"""What the solvers' compiled code reads: a program on a device as flat columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accelsim.simulator import Simulator

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


class Tables(NamedTuple):
    """A program with T steps, K accesses, N buffers and E events; read only.

    An *event* of a buffer is a longest run of its accesses between which no copy can be placed: one step at top
    level, a whole region inside one. Events of buffer n are ``event_first[n]:event_first[n + 1]``, in time order.
    """

    capacity: int
    alignment: int
    steps: int

    compute_ps: Int64  # [T]
    repeat: Int64  # [T]
    step_first: Int32  # [T + 1]
    slow_ps: Int64  # [K]
    fast_ps: Int64  # [K]
    access_step: Int32  # [K]
    slow_sum: Int64  # [T] all accesses of one execution, served slow

    size: Int64  # [N]
    copy_ps: Int64  # [N]
    birth: Int32  # [N] buffer_start
    death: Int32  # [N] buffer_end
    is_input: Bool  # [N]
    is_output: Bool  # [N]
    inside: Bool  # [N] lives in one region only: nothing of it can be copied

    event_first: Int32  # [N + 1]
    event_low: Int32  # [E] last boundary at or before the event
    event_high: Int32  # [E] first boundary after it
    event_write: Int32  # [E] last step of the event that writes the buffer, -1: it only reads
    event_access: Int32  # [E + 1] accesses of event e are ``ordered_access[event_access[e]:event_access[e + 1]]``
    ordered_access: Int32  # [K] by (buffer, step)
    gap_rank: Int32  # [E] rank of the gap before it among its buffer's, longest first; -1: the first event

    down: Int32  # [T + 1] last boundary at or before the step
    up: Int32  # [T + 2] first boundary at or after the step, T at the end

    @property
    def buffers(self) -> int:
        return len(self.size)


def tables_of(simulator: Simulator) -> Tables:
    """Flatten the simulator's program for the solvers."""
    program, device, costs = simulator.program, simulator.device, simulator.costs
    steps, buffers = program.steps, program.buffers
    down, up = _boundaries(program.boundaries(), steps)
    order = simulator.buffer_access
    step = program.access_step[order]
    buffer = program.access_buffer[order]
    low, high = down[step], up[step + 1]

    fresh = np.ones(len(order), bool)
    fresh[1:] = (buffer[1:] != buffer[:-1]) | (low[1:] != low[:-1])
    first = np.flatnonzero(fresh)
    event_buffer = buffer[first]
    event_first = np.searchsorted(event_buffer, np.arange(buffers + 1)).astype(np.int32)
    last = np.append(first[1:], len(order)).astype(np.int32) - 1 if len(first) else np.zeros(0, np.int32)

    writes = program.access_write[order].copy()
    # A buffer that is not an input gets its bytes at its first access, whatever that is called.
    births = first[event_first[:-1][np.diff(event_first) > 0]]
    same = np.searchsorted(births, np.arange(len(order)), side="right") - 1
    if len(births):
        head = births[np.maximum(same, 0)]
        defines = (step == step[head]) & (buffer == buffer[head]) & ~program.buffer_input[buffer]
        writes |= defines
    write_step = np.where(writes, step, -1).astype(np.int32)
    event_write = np.maximum.reduceat(write_step, first) if len(first) else np.zeros(0, np.int32)

    return Tables(
        capacity=device.capacity_bytes,
        alignment=device.alignment_bytes,
        steps=steps,
        compute_ps=costs.compute_ps,
        repeat=costs.repeat,
        step_first=simulator.step_first,
        slow_ps=costs.slow_ps,
        fast_ps=costs.fast_ps,
        access_step=program.access_step.astype(np.int32),
        slow_sum=_sum_by_step(costs.slow_ps, program.access_step, steps),
        size=program.buffer_size.astype(np.int64),
        copy_ps=costs.copy_ps,
        birth=program.buffer_start.astype(np.int32),
        death=program.buffer_end.astype(np.int32),
        is_input=program.buffer_input,
        is_output=program.buffer_output,
        inside=_inside(simulator),
        event_first=event_first,
        event_low=low[first].astype(np.int32),
        event_high=high[last].astype(np.int32),
        event_write=event_write.astype(np.int32),
        event_access=np.append(first, len(order)).astype(np.int32),
        ordered_access=order.astype(np.int32),
        gap_rank=_gap_ranks(event_buffer, event_first, low[first], high[last]),
        down=down,
        up=up,
    )


def _boundaries(boundary: Bool, steps: int) -> tuple[Int32, Int32]:
    places = np.flatnonzero(boundary)
    down = places[np.searchsorted(places, np.arange(steps + 1), side="right") - 1].astype(np.int32)
    up = places[np.minimum(np.searchsorted(places, np.arange(steps + 2)), len(places) - 1)].astype(np.int32)
    return down, up


def _sum_by_step(values: Int64, step: Int32, steps: int) -> Int64:
    total = np.zeros(steps, np.int64)
    np.add.at(total, step, values)
    return total


def _inside(simulator: Simulator) -> Bool:
    program = simulator.program
    if not program.steps:
        return np.zeros(program.buffers, bool)
    region = program.step_region
    first = region[np.clip(program.buffer_start, 0, program.steps - 1)]
    last = region[np.clip(program.buffer_end - 1, 0, program.steps - 1)]
    result: Bool = (first >= 0) & (first == last) & ~program.buffer_input & ~program.buffer_output
    return result


def _gap_ranks(event_buffer: Int32, event_first: Int32, low: Int32, high: Int32) -> Int32:
    rank = np.full(len(event_buffer), -1, np.int32)
    if len(event_buffer) < 2:
        return rank
    later = np.flatnonzero(event_buffer[1:] == event_buffer[:-1]) + 1
    length = low[later] - high[later - 1]
    order = later[np.lexsort((later, -length, event_buffer[later]))]
    owner = event_buffer[order]
    # Within a buffer its gaps stand together: rank = place minus the place of the first.
    begin = np.searchsorted(owner, owner)
    rank[order] = np.arange(len(order)) - begin
    return rank
