"""Build a mapping one residency at a time, in compiled code.

The state of a half-built mapping is a `Board`: which bytes are taken when, what each step still asks of slow memory,
and how much of the DMA engine's time is spoken for. A solver is an order in which buffers are put on the board.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from accelsim.simulator import residency_copies, score_kernel
from search.memory.handle import handle
from search.memory.tables import Tables

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Uint8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

# How a buffer is placed. Zero or more: its life cut at that many of its longest gaps, each piece placed or not.
OUT = -1  # never in fast memory
SPLIT = -2  # for its whole life; where there is no room, cut at the longest gap, and so on with the pieces

_NOTHING = -1  # a piece that gains nothing
_NO_ROOM = -2  # a piece that would gain something if there were room
_TRIES = 4  # how often a prefetch that finds no room is moved closer to its use


class Board(NamedTuple):
    """A half-built mapping. `length[0]` residencies; their columns have room for one an event."""

    length: Int64  # [1]
    buffer: Int32  # [R]
    offset: Int64  # [R] bytes
    start: Int32  # [R]
    ready: Int32  # [R]
    end: Int32  # [R]
    prefetched: Bool  # [R]
    evict: Int32  # [R] -1: not evicted

    # The same rectangles by ascending offset, side by side for the search of gaps.
    low: Int64  # [R] offset
    high: Int64  # [R] end, aligned up
    since: Int32  # [R] start
    until: Int32  # [R] end
    row: Int32  # [R] which residency it is
    used: Int64  # [T + 1] bytes taken, each rectangle aligned up

    access_fast: Uint8  # [K]
    slow: Int64  # [T] ps of slow accesses, one execution
    fast: Int64  # [T]
    reserved: Int64  # [T] DMA time that placed copies count on, all executions
    idle: Int64  # [T] DMA time that the step offers and no placed copy counts on

    copy_issue: Int32  # [2 R] scratch of the score
    copy_wait: Int32  # [2 R]
    copy_time: Int64  # [2 R]
    arrived: Int64  # [T + 1]
    demand: Int64  # [T + 1]


def empty_board(tables: Tables) -> Board:
    """Return a board with nothing in fast memory."""
    room, steps, accesses = len(tables.event_low), tables.steps, len(tables.slow_ps)
    board = Board(
        length=np.zeros(1, np.int64),
        buffer=np.zeros(room, np.int32),
        offset=np.zeros(room, np.int64),
        start=np.zeros(room, np.int32),
        ready=np.zeros(room, np.int32),
        end=np.zeros(room, np.int32),
        prefetched=np.zeros(room, np.bool_),
        evict=np.zeros(room, np.int32),
        low=np.zeros(room, np.int64),
        high=np.zeros(room, np.int64),
        since=np.zeros(room, np.int32),
        until=np.zeros(room, np.int32),
        row=np.zeros(room, np.int32),
        used=np.zeros(steps + 1, np.int64),
        access_fast=np.zeros(accesses, np.uint8),
        slow=np.zeros(steps, np.int64),
        fast=np.zeros(steps, np.int64),
        reserved=np.zeros(steps, np.int64),
        idle=np.zeros(steps, np.int64),
        copy_issue=np.zeros(2 * room, np.int32),
        copy_wait=np.zeros(2 * room, np.int32),
        copy_time=np.zeros(2 * room, np.int64),
        arrived=np.zeros(steps + 1, np.int64),
        demand=np.zeros(steps + 1, np.int64),
    )
    clear(tables, board)
    return board


@njit(cache=True, nogil=True)
def settle(tables: Tables, board: Board, step: int) -> None:
    """Work out anew how much DMA time a step offers."""
    busy = max(tables.compute_ps[step], board.slow[step] + board.fast[step])
    free = tables.repeat[step] * (busy - board.slow[step]) - board.reserved[step]
    board.idle[step] = max(np.int64(0), free)


@njit(cache=True, nogil=True)
def clear(tables: Tables, board: Board) -> None:
    """Take everything off the board."""
    board.length[0] = 0
    board.used[:] = 0
    board.access_fast[:] = 0
    board.slow[:] = tables.slow_sum
    board.fast[:] = 0
    board.reserved[:] = 0
    for step in range(tables.steps):
        settle(tables, board, step)


@njit(cache=True, nogil=True)
def score(tables: Tables, board: Board) -> int:
    """Return the latency of the board's mapping in picoseconds: the simulator's own kernels."""
    count = board.length[0]
    copies = residency_copies(
        board.buffer[:count],
        board.start[:count],
        board.ready[:count],
        board.end[:count],
        board.prefetched[:count],
        board.evict[:count],
        tables.copy_ps,
        board.copy_issue,
        board.copy_wait,
        board.copy_time,
    )
    return score_kernel(
        tables.compute_ps,
        tables.repeat,
        tables.step_first,
        tables.slow_ps,
        tables.fast_ps,
        board.access_fast,
        board.copy_issue[:copies],
        board.copy_wait[:copies],
        board.copy_time[:copies],
        board.arrived,
        board.demand,
    )


@njit(cache=True, nogil=True)
def aligned(tables: Tables, size: int) -> Any:
    """Round up to the alignment."""
    return (size + tables.alignment - 1) // tables.alignment * tables.alignment


@njit(cache=True, nogil=True)
def crowded(tables: Tables, board: Board, size: int, start: int, end: int) -> bool:
    """Whether at some step of ``[start, end)`` there are fewer free bytes than that, wherever they lie."""
    # The topmost rectangle may end at a capacity that is not aligned itself, so both are rounded up.
    most = aligned(tables, tables.capacity) - aligned(tables, size)
    for step in range(start, end):
        if board.used[step] > most:
            return True
    return False


@njit(cache=True, nogil=True)
def best_fit(tables: Tables, board: Board, size: int, start: int, end: int) -> Any:
    """Return the aligned offset of the smallest free gap over ``[start, end)`` that holds the bytes, -1 if none does.

    Equal gaps: the lowest offset.
    """
    if crowded(tables, board, size, start, end):
        return -1
    best, smallest = np.int64(-1), np.int64(0)
    cursor = np.int64(0)
    for place in range(board.length[0]):
        if board.since[place] < end and start < board.until[place]:
            gap = board.low[place] - cursor
            if gap >= size and (best < 0 or gap < smallest):
                best, smallest = cursor, gap
            cursor = max(cursor, board.high[place])
    gap = tables.capacity - cursor
    if gap >= size and (best < 0 or gap < smallest):
        best = cursor
    return best


@njit(cache=True, nogil=True)
def insert(tables: Tables, board: Board, row: int) -> None:
    """Enter the rectangle of a residency, the newest one, among those by offset."""
    offset = board.offset[row]
    top = aligned(tables, offset + tables.size[board.buffer[row]])
    place = board.length[0] - 1
    while place > 0 and board.low[place - 1] > offset:
        board.low[place] = board.low[place - 1]
        board.high[place] = board.high[place - 1]
        board.since[place] = board.since[place - 1]
        board.until[place] = board.until[place - 1]
        board.row[place] = board.row[place - 1]
        place -= 1
    board.low[place] = offset
    board.high[place] = top
    board.since[place] = board.start[row]
    board.until[place] = board.end[row]
    board.row[place] = row
    for step in range(board.start[row], board.end[row]):
        board.used[step] += top - offset


@njit(cache=True, nogil=True)
def add(
    tables: Tables,
    board: Board,
    buffer: int,
    offset: int,
    start: int,
    ready: int,
    end: int,
    prefetched: bool,
    evict: int,
) -> None:
    """Put a residency on the board; its accesses are served by `serve`."""
    row = board.length[0]
    board.buffer[row] = buffer
    board.offset[row] = offset
    board.start[row] = start
    board.ready[row] = ready
    board.end[row] = end
    board.prefetched[row] = prefetched
    board.evict[row] = evict
    board.length[0] = row + 1
    insert(tables, board, row)


@njit(cache=True, nogil=True)
def extend(tables: Tables, board: Board, row: Any, end: Any) -> None:
    """Let a residency end later."""
    place = 0
    while board.row[place] != row:
        place += 1
    for step in range(board.end[row], end):
        board.used[step] += board.high[place] - board.low[place]
    board.end[row] = end
    board.until[place] = end


@njit(cache=True, nogil=True)
def truncate(board: Board, count: int) -> None:
    """Take all residencies but the oldest `count` off the board; what they are served from is not changed."""
    kept = 0
    for place in range(board.length[0]):
        if board.row[place] >= count:
            for step in range(board.since[place], board.until[place]):
                board.used[step] -= board.high[place] - board.low[place]
            continue
        board.low[kept] = board.low[place]
        board.high[kept] = board.high[place]
        board.since[kept] = board.since[place]
        board.until[kept] = board.until[place]
        board.row[kept] = board.row[place]
        kept += 1
    board.length[0] = count


@njit(cache=True, nogil=True)
def serves(tables: Tables, board: Board, row: int, event: int) -> Any:
    """Whether an event of the residency's buffer lies in it."""
    inside = tables.inside[board.buffer[row]]
    return inside or (board.ready[row] <= tables.event_low[event] and tables.event_high[event] <= board.end[row])


@njit(cache=True, nogil=True)
def remove_last(tables: Tables, board: Board) -> None:
    """Take the newest residency off the board; what it reserved of the DMA engine is the caller's to restore."""
    row = board.length[0] - 1
    buffer = board.buffer[row]
    for event in range(tables.event_first[buffer], tables.event_first[buffer + 1]):
        if serves(tables, board, row, event):
            serve(tables, board, event, event, False)
    truncate(board, row)


@njit(cache=True, nogil=True)
def serve(tables: Tables, board: Board, first: int, final: int, fast: bool) -> Any:
    """Serve the accesses of events first..final from fast or from slow memory; return the steps' time saved in ps."""
    saved = np.int64(0)
    for place in range(tables.event_access[first], tables.event_access[final + 1]):
        access = tables.ordered_access[place]
        step = tables.access_step[access]
        before = max(tables.compute_ps[step], board.slow[step] + board.fast[step])
        if fast:
            board.slow[step] -= tables.slow_ps[access]
            board.fast[step] += tables.fast_ps[access]
            board.access_fast[access] = 1
        else:
            board.slow[step] += tables.slow_ps[access]
            board.fast[step] -= tables.fast_ps[access]
            board.access_fast[access] = 0
        settle(tables, board, step)
        after = max(tables.compute_ps[step], board.slow[step] + board.fast[step])
        saved += tables.repeat[step] * (before - after)
    return saved


@njit(cache=True, nogil=True)
def _reserve(tables: Tables, board: Board, low: int, high: int, time: int, backwards: bool) -> None:
    """Book up to `time` ps of DMA in the steps ``[low, high)``."""
    for index in range(high - low):
        if time <= 0:
            return
        step = high - 1 - index if backwards else low + index
        taken = min(time, board.idle[step])
        board.reserved[step] += taken
        settle(tables, board, step)
        time -= taken


@njit(cache=True, nogil=True)
def _hidden(tables: Tables, board: Board, low: int, high: int, limit: int) -> Any:
    """DMA time in ps, at most `limit`, that the steps ``[low, high)`` offer."""
    total = np.int64(0)
    for step in range(low, high):
        total += board.idle[step]
        if total >= limit:
            return limit
    return total


@njit(cache=True, nogil=True)
def place_piece(tables: Tables, board: Board, buffer: int, first: int, final: Any, earliest: Any) -> Any:
    """Try to make a buffer resident over its events first..final, at the best-fitting offset.

    The first piece of a buffer that is no input is produced; every other is prefetched, issued at the latest step
    from which the DMA engine's idle time hides the copy, or closer to its use if there is no room. A piece that
    leaves newer bytes than slow memory's behind is evicted from its last write on, and held until that is hidden.
    It is placed only if the steps gain more than the part of its copies that is not hidden.

    Args:
        earliest: boundary from which slow memory holds the bytes.

    Returns:
        The end of the residency; `_NOTHING` or `_NO_ROOM` if there is none.
    """
    size = tables.size[buffer]
    produced = first == tables.event_first[buffer] and not tables.is_input[buffer]
    last_event = tables.event_first[buffer + 1] - 1
    if tables.inside[buffer]:
        if first != tables.event_first[buffer] or final != last_event:
            return _NOTHING
        return _place_inside(tables, board, buffer, first, final)

    needed_later = tables.is_output[buffer] or final < last_event
    last_write = -1
    for event in range(first, final + 1):
        last_write = max(last_write, tables.event_write[event])
    evict = -1
    if needed_later and last_write >= 0:
        evict = tables.up[last_write + 1]

    ready = tables.birth[buffer] if produced else tables.event_low[first]
    shortest = tables.event_high[final]
    late = evict < 0 and shortest > tables.death[buffer]
    if late or ready > tables.event_low[first] or tables.down[ready] != ready:
        return _NOTHING  # its life begins or ends inside a region, where nothing can be copied
    saved = serve(tables, board, first, final, True)
    if saved <= 0 or crowded(tables, board, size, ready, shortest):
        serve(tables, board, first, final, False)
        return _NOTHING if saved <= 0 else _NO_ROOM

    copy_ps = tables.copy_ps[buffer]
    end = shortest
    exposed_evict = np.int64(0)
    if evict >= 0:
        latest = tables.event_low[final + 1] if final < last_event else tables.steps
        end, exposed_evict = _eviction_end(tables, board, evict, shortest, latest, copy_ps)
        if end > shortest and best_fit(tables, board, size, ready, end) < 0:
            end = shortest
            exposed_evict = copy_ps - _hidden(tables, board, evict, end, copy_ps)
    start = ready
    exposed_fetch = np.int64(0)
    if not produced:
        start = _prefetch_start(tables, board, ready, earliest, copy_ps)
        for attempt in range(_TRIES):
            if start >= ready or best_fit(tables, board, size, start, end) >= 0:
                break
            closer = tables.up[(start + ready + 1) // 2]
            start = ready if attempt == _TRIES - 1 else min(ready, closer)
        exposed_fetch = copy_ps - _hidden(tables, board, start, ready, copy_ps)

    offset = best_fit(tables, board, size, start, end)
    if offset < 0 or saved <= exposed_fetch + exposed_evict:
        serve(tables, board, first, final, False)
        return _NO_ROOM if offset < 0 else _NOTHING
    if not produced:
        _reserve(tables, board, start, ready, copy_ps, True)
    if evict >= 0:
        _reserve(tables, board, evict, end, copy_ps, False)
    add(tables, board, buffer, offset, start, ready, end, not produced, evict)
    return end


@njit(cache=True, nogil=True)
def _place_inside(tables: Tables, board: Board, buffer: int, first: int, final: int) -> Any:
    start, end = tables.birth[buffer], tables.death[buffer]
    offset = best_fit(tables, board, tables.size[buffer], start, end)
    if offset < 0:
        return _NO_ROOM
    if serve(tables, board, first, final, True) <= 0:
        serve(tables, board, first, final, False)
        return _NOTHING
    add(tables, board, buffer, offset, start, start, end, False, -1)
    return end


@njit(cache=True, nogil=True)
def _prefetch_start(tables: Tables, board: Board, ready: int, earliest: int, copy_ps: int) -> Any:
    """The latest boundary from which idle DMA time hides the copy; `earliest` if there is none."""
    wanted = copy_ps
    step = ready
    while step > earliest:
        step -= 1
        wanted -= board.idle[step]
        if wanted <= 0:
            break
    return max(earliest, tables.down[step])


@njit(cache=True, nogil=True)
def _eviction_end(tables: Tables, board: Board, evict: int, shortest: int, latest: int, copy_ps: int) -> Any:
    """The first boundary by which idle DMA time has hidden the eviction, and the ps that stay exposed at `latest`."""
    wanted = copy_ps
    step = evict
    while step < latest and wanted > 0:
        wanted -= board.idle[step]
        step += 1
    return min(latest, max(shortest, tables.up[step])), max(np.int64(0), wanted)


@njit(cache=True, nogil=True)
def place_buffer(tables: Tables, board: Board, buffer: int, choice: int) -> int:
    """Put a buffer on the board as the choice says (not `OUT`); return how many pieces found room."""
    first, last = tables.event_first[buffer], tables.event_first[buffer + 1] - 1
    placed = 0
    earliest = np.int64(0)
    piece = first
    while piece <= last:
        final = np.int64(last)
        if choice > 0:
            final = np.int64(piece)
            while final < last and tables.gap_rank[final + 1] >= choice:
                final += 1
        end = place_piece(tables, board, buffer, piece, final, earliest)
        while end == _NO_ROOM and choice == SPLIT and final > piece and not tables.inside[buffer]:
            # The longest gap has the lowest rank.
            cut = piece + 1
            for event in range(piece + 2, final + 1):
                if tables.gap_rank[event] < tables.gap_rank[cut]:
                    cut = event
            final = np.int64(cut - 1)
            end = place_piece(tables, board, buffer, piece, final, earliest)
        if end >= 0:
            placed += 1
            earliest = np.int64(end)
        else:
            for event in range(piece, final + 1):
                if tables.event_write[event] >= 0:
                    earliest = np.int64(tables.up[tables.event_write[event] + 1])
        piece = final + 1
    return placed


@njit(cache=True, nogil=True)
def decode(tables: Tables, board: Board, order: Int32, choice: Int32) -> int:
    """Fill the board with the buffers in order, `choice` (`int32[N]`) saying how; return the latency in ps."""
    tables, board = handle(tables), handle(board)
    clear(tables, board)
    for buffer in order:
        if choice[buffer] != OUT:
            place_buffer(tables, board, buffer, choice[buffer])
    return score(tables, board)


@njit(cache=True, nogil=True)
def benefits(tables: Tables) -> Int64:
    """Return `int64[N]`: what the steps gain, in ps, if this buffer alone is served from fast memory.

    A buffer without a gain here has none on any board: a step's time is convex in what it asks of slow memory.
    """
    gain = np.zeros(len(tables.size), np.int64)
    for buffer in range(len(tables.size)):
        step = -1
        saving = np.int64(0)
        low, high = tables.event_first[buffer], tables.event_first[buffer + 1]
        for place in range(tables.event_access[low], tables.event_access[high]):
            access = tables.ordered_access[place]
            if tables.access_step[access] != step:
                step = tables.access_step[access]
                saving = np.int64(0)
            before = max(tables.compute_ps[step], tables.slow_sum[step] - saving)
            saving += tables.slow_ps[access] - tables.fast_ps[access]
            after = max(tables.compute_ps[step], tables.slow_sum[step] - saving)
            gain[buffer] += tables.repeat[step] * (before - after)
    return gain
