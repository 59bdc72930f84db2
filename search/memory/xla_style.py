"""XLA's memory-space assignment (MSA), rebuilt on our machine: the production heuristic that a search should beat.

As in XLA: buffers by boundedness; one segment between two uses at a time: no copy, else eviction, else prefetch, else
slow memory; a cost-based picker of prefetch times; separate copy resources for prefetches and evictions, each served in
start order; best fit, retries, repacking.

Where we decide:
- XLA counts the whole time of an instruction as copy time. On our machine a copy works only while slow memory is idle,
  so a plan made that way stalls. Four plans are made and the simulator takes the best: with XLA's count, with the
  idle time of the all-slow program, the same without evictions that lack copy time (XLA accepts them on the last
  retry), and with the idle time that the best of these leaves;
- a loop weighs its trip count, which we know, in place of 5 to the power of its depth;
- a buffer is one proposal with all that aliases it, and accesses inside one loop or branch count as one use;
- an output that nothing reads again is written to slow memory;
- a chunk is chosen to stay free as long as possible: up to the farthest use without a copy, or half as far;
- an eviction is awaited at the first boundary by which its resource has served it;
- a result that the simulator finds slower than all-slow gives way to all-slow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from accelsim.device import Device
from search.memory.handle import handle
from search.memory.placement import Board, add, best_fit, clear, extend, insert, score, serve, serves, truncate
from search.memory.problem import Problem
from search.memory.settings import XlaStyle
from search.memory.tables import Int32, Int64, Tables

PLANS = 4  # mappings that are scored for one result
_PROBES = 100  # start times of one prefetch that are tried before the preferred one


class Pool(NamedTuple):
    """Copies of one direction in the order in which they are served: ascending start, equal starts by arrival.

    `supply[t]` is the copy time in ps that all steps before t offer. A copy begins at its start or when the one
    before it is done, whichever is later, and must be done by its deadline.
    """

    length: Int64  # [1]
    begin: Int64  # [R] supply at the start
    deadline: Int64  # [R] supply at the end
    need: Int64  # [R] ps
    row: Int64  # [R] the residency that it belongs to


class Plan(NamedTuple):
    """What MSA knows of the program: times before it starts, and the limits of the settings."""

    supply: Int64  # [T + 1] copy resource before each step
    clock: Int64  # [T + 1] time at which each step begins
    least_overlap: float
    preferred_overlap: float
    longest_residence: float  # ps


def _empty_pool(room: int) -> Pool:
    return Pool(
        length=np.zeros(1, np.int64),
        begin=np.zeros(room, np.int64),
        deadline=np.zeros(room, np.int64),
        need=np.zeros(room, np.int64),
        row=np.zeros(room, np.int64),
    )


@njit(cache=True, nogil=True)
def _book(pool: Pool, begin: Any, deadline: Any, need: Any, row: Any, forced: bool) -> bool:
    """Add a copy if it and all others still meet their deadlines; `forced`: add it as one that needs nothing."""
    count = pool.length[0]
    place = count
    while place > 0 and pool.begin[place - 1] > begin:
        place -= 1
    free: Any = np.int64(0)
    if forced:
        need = 0
    else:
        for other in range(place):
            free = max(free, pool.begin[other]) + pool.need[other]
        free = max(free, begin) + need
        if free > deadline:
            return False
        for other in range(place, count):
            if pool.begin[other] >= free:
                break
            free += pool.need[other]
            if free > pool.deadline[other]:
                return False
    for other in range(count, place, -1):
        pool.begin[other] = pool.begin[other - 1]
        pool.deadline[other] = pool.deadline[other - 1]
        pool.need[other] = pool.need[other - 1]
        pool.row[other] = pool.row[other - 1]
    pool.begin[place] = begin
    pool.deadline[place] = deadline
    pool.need[place] = need
    pool.row[place] = row
    pool.length[0] = count + 1
    return True


@njit(cache=True, nogil=True)
def _forget(pool: Pool, first_row: int) -> None:
    """Take out the copies of residencies from `first_row` on."""
    kept = 0
    for place in range(pool.length[0]):
        if pool.row[place] < first_row:
            pool.begin[kept] = pool.begin[place]
            pool.deadline[kept] = pool.deadline[place]
            pool.need[kept] = pool.need[place]
            pool.row[kept] = pool.row[place]
            kept += 1
    pool.length[0] = kept


@njit(cache=True, nogil=True)
def _uncommit(board: Board, fetches: Pool, evictions: Pool, first_row: int) -> None:
    """Take the residencies from `first_row` on off the board, with their copies."""
    truncate(board, first_row)
    _forget(fetches, first_row)
    _forget(evictions, first_row)


@njit(cache=True, nogil=True)
def _free_at(tables: Tables, board: Board, offset: int, size: int, start: int, end: int) -> bool:
    """Whether nothing else lies in ``[offset, offset + size)`` during ``[start, end)``."""
    for place in range(board.length[0]):
        if board.since[place] < end and start < board.until[place]:
            if board.low[place] < offset + size and offset < board.high[place]:
                return False
    return True


@njit(cache=True, nogil=True)
def _repack(tables: Tables, board: Board) -> bool:
    """Place all residencies anew, the longest first, then the largest, best fit; keep the old offsets if one fails."""
    count = board.length[0]
    key = np.empty(count, np.float64)
    for row in range(count):
        key[row] = -float(tables.size[board.buffer[row]])
    by_size = np.argsort(key, kind="mergesort")
    for place in range(count):
        row = by_size[place]
        key[place] = -float(board.end[row] - board.start[row])
    order = by_size[np.argsort(key, kind="mergesort")]
    before = board.offset[:count].copy()
    truncate(board, 0)
    fits = True
    for place in range(count):
        row = order[place]
        board.offset[row] = best_fit(tables, board, tables.size[board.buffer[row]], board.start[row], board.end[row])
        if board.offset[row] < 0:
            fits = False
            break
        board.length[0] = place + 1
        insert(tables, board, row)
    if not fits:
        truncate(board, 0)
        board.offset[:count] = before
        for row in range(count):
            board.length[0] = row + 1
            insert(tables, board, row)
    return fits


@njit(cache=True, nogil=True)
def _near(tables: Tables, plan: Plan, event: int) -> bool:
    """Whether a buffer may wait in fast memory from the event before this one."""
    waited = plan.clock[tables.event_low[event]] - plan.clock[tables.event_low[event - 1]]
    return bool(waited < plan.longest_residence)


@njit(cache=True, nogil=True)
def _chunk(tables: Tables, board: Board, plan: Plan, buffer: int, start: int, event: int) -> Any:
    """An offset that is free from `start` to the end of the event, and as far beyond as later uses can be reached."""
    size = tables.size[buffer]
    last = tables.event_first[buffer + 1] - 1
    far = event
    while far < last and _near(tables, plan, far + 1):
        far += 1
    while True:
        offset = best_fit(tables, board, size, start, tables.event_high[far])
        if offset >= 0 or far == event:
            return offset
        far = event + (far - event) // 2


@njit(cache=True, nogil=True)
def _evict(
    tables: Tables, board: Board, plan: Plan, evictions: Pool, row: Any, last_write: Any, latest: Any, forced: bool
) -> bool:
    """Evict a residency right after its last write, awaited as soon as its resource allows, by `latest`."""
    buffer = board.buffer[row]
    size, need = tables.size[buffer], tables.copy_ps[buffer]
    begin = tables.up[last_write + 1]
    held = board.end[row]
    end = max(begin, held)
    while True:
        if not _free_at(tables, board, board.offset[row], size, held, end):
            return False
        if _book(evictions, plan.supply[begin], plan.supply[end], need, row, False):
            break
        if end >= latest:
            if not forced:
                return False
            end = max(begin, held)
            _book(evictions, plan.supply[begin], plan.supply[end], need, row, True)
            break
        end = tables.up[end + 1]
    board.evict[row] = begin
    extend(tables, board, row, end)
    return True


@njit(cache=True, nogil=True)
def _prefetch(
    tables: Tables, board: Board, plan: Plan, fetches: Pool, buffer: int, event: int, since: Any, saved: Any
) -> tuple[int, bool]:
    """Try start times of a prefetch for an event; return its residency or -1, and whether only room was lacking."""
    need = tables.copy_ps[buffer]
    use = tables.event_low[event]
    low = since
    while low < use and plan.clock[use] - plan.clock[low] > plan.longest_residence:
        low = tables.up[low + 1]
    high = use
    while high > low and plan.clock[use] - plan.clock[high] + saved < plan.least_overlap * need:
        high = tables.down[high - 1]
    if plan.clock[use] - plan.clock[high] + saved < plan.least_overlap * need or low > use:
        return -1, False
    early = high
    while early > low and plan.clock[use] - plan.clock[early] < plan.preferred_overlap * need:
        early = tables.down[early - 1]
    late = early
    stride = 1
    crowded = False
    first = True
    while early >= low or late <= high:
        for side in range(2):
            start = late if side == 0 else early
            if first and side == 1:
                continue
            if (side == 0 and late > high) or (side == 1 and early < low):
                continue
            if _book(fetches, plan.supply[start], plan.supply[use], need, board.length[0], False):
                offset = _chunk(tables, board, plan, buffer, start, event)
                if offset >= 0:
                    add(tables, board, buffer, offset, start, use, tables.event_high[event], True, -1)
                    return board.length[0] - 1, False
                crowded = True
                _forget(fetches, board.length[0])
        first = False
        # The preferred start is tried once, then one later and one earlier at a time.
        late = tables.up[late + 1] if late < high else high + 1
        if late > high and stride == 1:
            stride = max(1, (early - low) // _PROBES)
        early = tables.down[max(early - stride, 0)] if early > low else low - 1
    return -1, crowded


@njit(cache=True, nogil=True)
def _propose(
    tables: Tables,
    board: Board,
    plan: Plan,
    fetches: Pool,
    evictions: Pool,
    buffer: int,
    event_saving: Int64,
    forced: bool,
) -> tuple[bool, bool]:
    """Allocate all segments of a buffer; return whether it holds together, and whether room was lacking somewhere."""
    first, last = tables.event_first[buffer], tables.event_first[buffer + 1] - 1
    if tables.inside[buffer]:
        start, end = tables.birth[buffer], tables.death[buffer]
        offset = best_fit(tables, board, tables.size[buffer], start, end)
        if offset >= 0:
            add(tables, board, buffer, offset, start, start, end, False, -1)
        return True, offset < 0

    crowded = False
    row = np.int64(-1)
    last_write = np.int64(-1)
    current: Any = bool(tables.is_input[buffer])  # slow memory has the bytes, from step `since` on
    since = np.int64(0)
    for event in range(first, last + 1):
        write = np.int64(tables.event_write[event])
        if event == first and not tables.is_input[buffer]:
            born = tables.birth[buffer]
            useful = event < last or tables.event_access[event + 1] - tables.event_access[event] > 1
            legal = tables.down[born] == born and born <= tables.event_low[event]
            if useful and legal:
                offset = _chunk(tables, board, plan, buffer, born, event)
                if offset >= 0:
                    row = np.int64(board.length[0])
                    add(tables, board, buffer, offset, born, born, tables.event_high[event], False, -1)
                    last_write = write
                    current = False
                    continue
                crowded = True
            current = True
            since = np.int64(tables.up[write + 1])
            continue
        if row >= 0:
            near = _near(tables, plan, event)
            size, end = tables.size[buffer], tables.event_high[event]
            if near and _free_at(tables, board, board.offset[row], size, board.end[row], end):
                extend(tables, board, row, end)
                if write >= 0:
                    last_write = write
                    current = False
                continue
            crowded = crowded or near
            if not current:
                if not _evict(tables, board, plan, evictions, row, last_write, tables.event_low[event], forced):
                    return False, crowded
                current = True
            since = np.int64(board.end[row])
            row = np.int64(-1)
        found, tight = _prefetch(tables, board, plan, fetches, buffer, event, since, event_saving[event])
        crowded = crowded or tight
        if found >= 0:
            row = np.int64(found)
            last_write = write
            current = write < 0
        elif write >= 0:
            since = np.int64(tables.up[write + 1])
    if row >= 0 and tables.is_output[buffer] and not current:
        if not _evict(tables, board, plan, evictions, row, last_write, tables.steps, forced):
            return False, crowded
    if row >= 0 and board.evict[row] < 0 and board.end[row] > tables.death[buffer]:
        return False, crowded
    return True, crowded


@njit(cache=True, nogil=True)
def _assign(
    tables: Tables,
    board: Board,
    plan: Plan,
    fetches: Pool,
    evictions: Pool,
    order: Int32,
    event_saving: Int64,
    retries: int,
    repacks: int,
    stalls: bool,
) -> int:
    """Propose one buffer after another; return the latency in ps. `stalls`: the last retry may evict without time."""
    tables, board, plan = handle(tables), handle(board), handle(plan)
    fetches, evictions = handle(fetches), handle(evictions)
    clear(tables, board)
    for buffer in order:
        committed = board.length[0]
        attempt = 0
        repacked = False
        while attempt <= retries:
            forced = stalls and attempt == retries
            sound, crowded = _propose(tables, board, plan, fetches, evictions, buffer, event_saving, forced)
            if crowded and repacks > 0 and not repacked:
                _uncommit(board, fetches, evictions, committed)
                repacks -= 1
                repacked = True
                _repack(tables, board)
                continue
            if sound:
                break
            _uncommit(board, fetches, evictions, committed)
            attempt += 1
    for row in range(board.length[0]):
        buffer = board.buffer[row]
        for event in range(tables.event_first[buffer], tables.event_first[buffer + 1]):
            if serves(tables, board, row, event):
                serve(tables, board, event, event, True)
    return score(tables, board)


@njit(cache=True, nogil=True)
def _boundedness(tables: Tables, weight: Int64, event_saving: Int64) -> NDArray[np.float64]:
    """Return XLA's memory boundedness of each buffer, `float64[N]`; fill the time saved at each event, `int64[E]`."""
    result = np.zeros(len(tables.size), np.float64)
    for buffer in range(len(tables.size)):
        total = 0.0
        fresh = True
        for event in range(tables.event_first[buffer], tables.event_first[buffer + 1]):
            place = tables.event_access[event]
            stop = tables.event_access[event + 1]
            while place < stop:
                step = tables.access_step[tables.ordered_access[place]]
                saving = np.int64(0)
                while place < stop and tables.access_step[tables.ordered_access[place]] == step:
                    access = tables.ordered_access[place]
                    saving += tables.slow_ps[access] - tables.fast_ps[access]
                    place += 1
                before = max(tables.compute_ps[step], tables.slow_sum[step])
                after = max(tables.compute_ps[step], tables.slow_sum[step] - saving)
                event_saving[event] += tables.repeat[step] * (before - after)
                if tables.slow_sum[step] > tables.compute_ps[step]:
                    term = float(saving) * weight[step]
                else:
                    term = float(tables.slow_sum[step] - tables.compute_ps[step])
                total = term if fresh else (total + term if total > 0 and term > 0 else max(total, term))
                fresh = False
        result[buffer] = total / np.sqrt(float(max(np.int64(1), tables.size[buffer])))
    return result


def xla_style(problem: Problem, board: Board, settings: XlaStyle) -> int:
    """Fill the board as XLA's memory-space assignment would; return the number of evaluations."""
    tables, program, device = problem.tables, problem.program, problem.device
    event_saving = np.zeros(len(tables.event_low), np.int64)
    order = _order(problem, _boundedness(tables, tables.repeat, event_saving))
    room = len(tables.event_low)

    def assign(supply: Int64, elapsed: Int64, stalls: bool) -> int:
        # A loop or branch offers no copy resource: it may use the memory itself.
        resource = np.where(program.step_region >= 0, 0, supply)
        plan = _plan(device, settings, resource, elapsed)
        fetches, evictions = _empty_pool(room), _empty_pool(room)
        limits = settings.retries, settings.repacks, stalls
        return _assign(tables, board, plan, fetches, evictions, order, event_saving, *limits)

    def times() -> tuple[Int64, Int64]:
        """The idle and the elapsed time of each step with what is on the board."""
        busy = np.maximum(tables.compute_ps, board.slow + board.fast)
        return tables.repeat * (busy - board.slow), tables.repeat * busy

    clear(tables, board)
    idle, elapsed = times()
    plans = [(elapsed, elapsed, True), (idle, elapsed, True), (idle, elapsed, False)]
    latencies = []
    leaves = []
    for plan in plans:
        latencies.append(assign(*plan))
        leaves.append(times())
    leader = int(np.argmin(latencies))
    plans.append((*leaves[leader], plans[leader][2]))
    latencies.append(assign(*plans[-1]))
    best = int(np.argmin(latencies))
    if latencies[best] > problem.all_slow_ps:
        clear(tables, board)
    elif best < PLANS - 1:
        assign(*plans[best])
    return PLANS


def _plan(device: Device, settings: XlaStyle, supply: Int64, elapsed: Int64) -> Plan:
    whole_copy = device.dma_latency_ps + device.capacity_bytes * 10**12 // device.dma_bytes_per_second
    return Plan(
        supply=np.concatenate([np.zeros(1, np.int64), np.cumsum(supply)]),
        clock=np.concatenate([np.zeros(1, np.int64), np.cumsum(elapsed)]),
        least_overlap=settings.min_overlap_ratio,
        preferred_overlap=settings.preferred_overlap_ratio,
        longest_residence=settings.max_overlap_ratio * whole_copy,
    )


def _order(problem: Problem, boundedness: NDArray[np.float64]) -> Int32:
    """XLA's sort key, ascending: -boundedness, -size, -duration, latest use, start, id."""
    tables = problem.tables
    used = np.diff(tables.event_first) > 0
    able = np.flatnonzero(used & (tables.size > 0) & (tables.size <= tables.capacity))
    latest = tables.event_high[tables.event_first[able + 1] - 1]
    duration = tables.death[able] - tables.birth[able]
    key = np.lexsort((able, tables.birth[able], latest, -duration, -tables.size[able], -boundedness[able]))
    return able[key].astype(np.int32)
