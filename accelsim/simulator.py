"""Latency of a whole batch of mappings at once, in integer picoseconds.

The machine, step by step, with one in-order DMA queue for both directions:

1. before step t the copies issued at t enter the queue, evictions first, then by buffer;
2. if copies are awaited before t, the machine stalls until the last of them (and so all before it) is done;
3. the step takes ``repeat * max(compute, memory)``; slow memory serves the step's own slow accesses, and what
   is left of that time drains the queue.

Waits before step T happen at the end. `accelsim.reference` is the same machine with an explicit list of copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from accelsim.cost import Costs
from accelsim.device import Device
from accelsim.mapping import Mapping
from accelsim.program import Program

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Uint8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]


@njit(cache=True, nogil=True)
def score_kernel(
    compute_ps: Int64,
    repeat: Int64,
    step_first: Int32,
    slow_ps: Int64,
    fast_ps: Int64,
    access_fast: Uint8,
    copy_issue: Int32,
    copy_wait: Int32,
    copy_ps: Int64,
    arrived: Int64,
    demand: Int64,
) -> int:
    """Return the latency of one mapping in picoseconds; callable from other compiled code.

    Args:
        compute_ps: `int64[T]`; repeat: `int64[T]`.
        step_first: `int32[T + 1]`, the accesses of step t are ``step_first[t]:step_first[t + 1]``.
        slow_ps, fast_ps: `int64[K]`; access_fast: `uint8[K]`, 1 where the access is served from fast memory.
        copy_issue, copy_wait: `int32[C]` steps, in queue order (see `residency_copies`); copy_ps: `int64[C]`.
        arrived, demand: `int64[T + 1]` scratch; any contents, overwritten.
    """
    steps = len(compute_ps)
    arrived[:] = 0
    demand[:] = 0
    position = 0
    for copy in range(len(copy_issue)):
        position += copy_ps[copy]
        arrived[copy_issue[copy]] += copy_ps[copy]
        # Queue order is issue order, so a later copy's position is larger: the newest awaited copy decides.
        demand[copy_wait[copy]] = position
    latency = 0
    enqueued = 0
    backlog = 0
    for step in range(steps + 1):
        enqueued += arrived[step]
        backlog += arrived[step]
        stall = demand[step] - (enqueued - backlog)
        if stall > 0:
            latency += stall
            backlog -= stall
        if step == steps:
            break
        slow = 0
        fast = 0
        for access in range(step_first[step], step_first[step + 1]):
            if access_fast[access]:
                fast += fast_ps[access]
            else:
                slow += slow_ps[access]
        busy = max(compute_ps[step], slow + fast)
        latency += repeat[step] * busy
        backlog = max(0, backlog - repeat[step] * (busy - slow))
    return latency


@njit(cache=True, nogil=True)
def residency_copies(
    buffer: Int32,
    start: Int32,
    ready: Int32,
    end: Int32,
    prefetched: Bool,
    evict: Int32,
    buffer_copy_ps: Int64,
    copy_issue: Int32,
    copy_wait: Int32,
    copy_ps: Int64,
) -> int:
    """Fill the copies of R residencies in queue order and return how many there are.

    The outputs `int32[2 * R]`, `int32[2 * R]`, `int64[2 * R]` hold the copies in their first places. Residencies
    need not be sorted. Copies issued before one step: evictions first, then by buffer, then by residency.
    """
    count = 0
    size = 0
    for index in range(len(buffer)):
        size += int(prefetched[index]) + int(evict[index] >= 0)
    key = np.empty(size, np.int64)
    source = np.empty(size, np.int64)
    buffers = len(buffer_copy_ps)
    for index in range(len(buffer)):
        if prefetched[index]:
            key[count] = (np.int64(start[index]) * 2 + 1) * buffers + buffer[index]
            source[count] = index * 2
            count += 1
        if evict[index] >= 0:
            key[count] = np.int64(evict[index]) * 2 * buffers + buffer[index]
            source[count] = index * 2 + 1
            count += 1
    order = np.argsort(key, kind="mergesort")
    for place in range(count):
        index = source[order[place]] // 2
        is_eviction = source[order[place]] % 2 == 1
        copy_issue[place] = evict[index] if is_eviction else start[index]
        copy_wait[place] = end[index] if is_eviction else ready[index]
        copy_ps[place] = buffer_copy_ps[buffer[index]]
    return count


@njit(cache=True, nogil=True)
def mark_fast(
    buffer: Int32,
    ready: Int32,
    end: Int32,
    buffer_first: Int32,
    buffer_access: Int32,
    access_step: Int32,
    access_fast: Uint8,
) -> None:
    """Set `access_fast` (`uint8[K]`) to 1 where one of R residencies serves the access, to 0 elsewhere.

    The accesses of buffer n are ``buffer_access[buffer_first[n]:buffer_first[n + 1]]``.
    """
    access_fast[:] = 0
    for index in range(len(buffer)):
        for place in range(buffer_first[buffer[index]], buffer_first[buffer[index] + 1]):
            access = buffer_access[place]
            if ready[index] <= access_step[access] < end[index]:
                access_fast[access] = 1


@njit(cache=True, nogil=True)
def score_residencies(
    compute_ps: Int64,
    repeat: Int64,
    step_first: Int32,
    slow_ps: Int64,
    fast_ps: Int64,
    buffer_copy_ps: Int64,
    buffer_first: Int32,
    buffer_access: Int32,
    access_step: Int32,
    buffer: Int32,
    start: Int32,
    ready: Int32,
    end: Int32,
    prefetched: Bool,
    evict: Int32,
) -> int:
    """Return the latency of R residencies in picoseconds; callable from other compiled code."""
    room = 2 * len(buffer)
    copy_issue = np.empty(room, np.int32)
    copy_wait = np.empty(room, np.int32)
    copy_ps = np.empty(room, np.int64)
    count = residency_copies(
        buffer, start, ready, end, prefetched, evict, buffer_copy_ps, copy_issue, copy_wait, copy_ps
    )
    access_fast = np.empty(len(slow_ps), np.uint8)
    mark_fast(buffer, ready, end, buffer_first, buffer_access, access_step, access_fast)
    steps = len(compute_ps)
    return score_kernel(
        compute_ps,
        repeat,
        step_first,
        slow_ps,
        fast_ps,
        access_fast,
        copy_issue[:count],
        copy_wait[:count],
        copy_ps[:count],
        np.empty(steps + 1, np.int64),
        np.empty(steps + 1, np.int64),
    )


@njit(cache=True, nogil=True)
def _score_batch(
    compute_ps: Int64,
    repeat: Int64,
    step_first: Int32,
    slow_ps: Int64,
    fast_ps: Int64,
    access_fast: Uint8,
    first: Int64,
    copy_issue: Int32,
    copy_wait: Int32,
    copy_ps: Int64,
    latency: Int64,
) -> None:
    steps = len(compute_ps)
    arrived = np.empty(steps + 1, np.int64)
    demand = np.empty(steps + 1, np.int64)
    for index in range(len(latency)):
        low, high = first[index], first[index + 1]
        latency[index] = score_kernel(
            compute_ps,
            repeat,
            step_first,
            slow_ps,
            fast_ps,
            access_fast[index],
            copy_issue[low:high],
            copy_wait[low:high],
            copy_ps[low:high],
            arrived,
            demand,
        )


@njit(cache=True, nogil=True)
def _timeline(
    compute_ps: Int64,
    repeat: Int64,
    step_first: Int32,
    slow_ps: Int64,
    fast_ps: Int64,
    access_fast: Uint8,
    copy_issue: Int32,
    copy_wait: Int32,
    copy_ps: Int64,
    elapsed: Int64,
    stall: Int64,
    queue: Int64,
) -> None:
    steps = len(compute_ps)
    arrived = np.zeros(steps + 1, np.int64)
    demand = np.zeros(steps + 1, np.int64)
    position = 0
    for copy in range(len(copy_issue)):
        position += copy_ps[copy]
        arrived[copy_issue[copy]] += copy_ps[copy]
        demand[copy_wait[copy]] = position
    enqueued = 0
    backlog = 0
    for step in range(steps + 1):
        enqueued += arrived[step]
        backlog += arrived[step]
        stall[step] = max(0, demand[step] - (enqueued - backlog))
        backlog -= stall[step]
        queue[step] = backlog
        if step == steps:
            break
        slow = 0
        fast = 0
        for access in range(step_first[step], step_first[step + 1]):
            if access_fast[access]:
                fast += fast_ps[access]
            else:
                slow += slow_ps[access]
        busy = max(compute_ps[step], slow + fast)
        elapsed[step] = repeat[step] * busy
        backlog = max(0, backlog - repeat[step] * (busy - slow))


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Where the time of one mapping goes, in picoseconds."""

    elapsed: Int64  # [T] the step itself, all its executions
    stall: Int64  # [T + 1] waiting for copies before the step; the last one is at the end of the program
    backlog: Int64  # [T + 1] copies still in the queue when the step starts

    @property
    def latency(self) -> int:
        return int(self.elapsed.sum()) + int(self.stall.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingBatch:
    """B mappings as columns: all that the simulator needs of them.

    Copies of mapping b are ``first[b]:first[b + 1]``, in queue order: ascending issue step, evictions first,
    then by buffer.
    """

    access_fast: Uint8  # [B, K] 1: served from fast memory
    first: Int64  # [B + 1]
    copy_issue: Int32  # [C] the copy enters the queue before this step
    copy_wait: Int32  # [C] and is awaited before this one
    copy_buffer: Int32  # [C]

    @classmethod
    def of(cls, program: Program, mappings: Sequence[Mapping]) -> MappingBatch:
        """Collect the columns of several mappings of one program."""
        access_fast = np.zeros((len(mappings), program.accesses), np.uint8)
        first = np.zeros(len(mappings) + 1, np.int64)
        issues, waits, buffers = [], [], []
        for index, mapping in enumerate(mappings):
            access_fast[index] = mapping.access_offset >= 0
            issue, wait, buffer = queue_of(mapping)
            first[index + 1] = first[index] + len(issue)
            issues.append(issue)
            waits.append(wait)
            buffers.append(buffer)
        empty = np.zeros(0, np.int32)
        return cls(
            access_fast=access_fast,
            first=first,
            copy_issue=np.concatenate([empty, *issues]),
            copy_wait=np.concatenate([empty, *waits]),
            copy_buffer=np.concatenate([empty, *buffers]),
        )

    @property
    def size(self) -> int:
        return len(self.first) - 1


def queue_of(mapping: Mapping) -> tuple[Int32, Int32, Int32]:
    """List the copies of a mapping in queue order: issue step, wait step and buffer, each `int32[C]`."""
    fetched, evicted = mapping.prefetched, mapping.evict >= 0
    issue = np.concatenate([mapping.evict[evicted], mapping.start[fetched]])
    wait = np.concatenate([mapping.end[evicted], mapping.ready[fetched]])
    buffer = np.concatenate([mapping.buffer[evicted], mapping.buffer[fetched]])
    is_prefetch = np.concatenate([np.zeros(int(evicted.sum()), bool), np.ones(int(fetched.sum()), bool)])
    order = np.lexsort((buffer, is_prefetch, issue))
    return issue[order].astype(np.int32), wait[order].astype(np.int32), buffer[order].astype(np.int32)


class Simulator:
    """The machine for one program on one device. All columns are public, for compiled code.

    Attributes:
        costs: durations of steps, accesses and copies.
        step_first: `int32[T + 1]`, the accesses of step t are ``step_first[t]:step_first[t + 1]``.
        buffer_first, buffer_access: the accesses of buffer n, ascending, are
            ``buffer_access[buffer_first[n]:buffer_first[n + 1]]``; `int32[N + 1]` and `int32[K]`.
    """

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.device = device
        self.costs = Costs.of(program, device)
        self.step_first = np.searchsorted(program.access_step, np.arange(program.steps + 1)).astype(np.int32)
        self.buffer_access = np.argsort(program.access_buffer, kind="stable").astype(np.int32)
        ranks = np.arange(program.buffers + 1)
        self.buffer_first = np.searchsorted(program.access_buffer[self.buffer_access], ranks).astype(np.int32)

    def _machine(self) -> tuple[Int64, Int64, Int32, Int64, Int64]:
        costs = self.costs
        return costs.compute_ps, costs.repeat, self.step_first, costs.slow_ps, costs.fast_ps

    def latency(self, mapping: Mapping) -> int:
        """Return the latency of one legal mapping in picoseconds."""
        return int(self.latencies(MappingBatch.of(self.program, [mapping]))[0])

    def latencies(self, batch: MappingBatch) -> Int64:
        """Return the latencies `[B]` of legal mappings in picoseconds."""
        latency = np.zeros(batch.size, np.int64)
        copy_ps = self.costs.copy_ps[batch.copy_buffer]
        queue = (batch.first, batch.copy_issue, batch.copy_wait, copy_ps)
        _score_batch(*self._machine(), batch.access_fast, *queue, latency)
        return latency

    def timeline(self, mapping: Mapping) -> Timeline:
        """Return where the time of one legal mapping goes."""
        steps = self.program.steps
        elapsed, stall, backlog = (np.zeros(length, np.int64) for length in (steps, steps + 1, steps + 1))
        issue, wait, buffer = queue_of(mapping)
        access_fast = (mapping.access_offset >= 0).astype(np.uint8)
        copies = (issue, wait, self.costs.copy_ps[buffer])
        _timeline(*self._machine(), access_fast, *copies, elapsed, stall, backlog)
        return Timeline(elapsed=elapsed, stall=stall, backlog=backlog)
