"""How fast no mapping can be, and whether there is anything to decide at all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from accelsim.cost import Costs
from accelsim.device import Device
from accelsim.program import Program

Int64 = NDArray[np.int64]


def lower_bound(program: Program, device: Device) -> int:
    """Return a latency in picoseconds that no legal mapping goes below; 0 only if nothing in the program costs time.

    The larger of two bounds:

    - *Time*: each step with every operand in fast memory, except in buffers that cannot be resident.
    - *Traffic*: slow memory serves either a step or the DMA engine, and every copy is awaited, so the latency is at
      least all slow accesses plus all copies. An input that is used costs a copy, or all its accesses; an output
      costs an eviction, or its last write; a buffer that cannot be resident costs all its accesses.
    """
    costs = Costs.of(program, device)
    return max(_time_bound(program, device, costs), _traffic_bound(program, device, costs))


def _can_be_resident(program: Program, device: Device) -> NDArray[np.bool_]:
    return (program.buffer_size > 0) & (program.buffer_size <= device.capacity_bytes)


def _time_bound(program: Program, device: Device, costs: Costs) -> int:
    resident = _can_be_resident(program, device)[program.access_buffer]
    memory_ps = np.zeros(program.steps, np.int64)
    np.add.at(memory_ps, program.access_step, np.where(resident, costs.fast_ps, costs.slow_ps))
    return int((costs.repeat * np.maximum(costs.compute_ps, memory_ps)).sum())


def _traffic_bound(program: Program, device: Device, costs: Costs) -> int:
    count = program.buffers
    slow_ps = costs.slow_ps * costs.repeat[program.access_step]
    all_slow = np.zeros(count, np.int64)
    np.add.at(all_slow, program.access_buffer, slow_ps)

    write = program.access_write
    last_write = np.full(count, -1, np.int64)
    np.maximum.at(last_write, program.access_buffer[write], program.access_step[write])
    final = write & (program.access_step == last_write[program.access_buffer])
    last_write_slow = np.zeros(count, np.int64)
    np.add.at(last_write_slow, program.access_buffer[final], slow_ps[final])

    # An input in fast memory took one copy to get there. If it or an output was written there last, it takes another
    # to get the bytes back; otherwise that last write went to slow memory.
    arrive = np.where(program.buffer_input, costs.copy_ps, 0)
    leave = np.where(program.buffer_output, np.minimum(costs.copy_ps, last_write_slow), 0)
    compulsory = np.minimum(all_slow, arrive + leave)
    return int(np.where(_can_be_resident(program, device), compulsory, all_slow).sum())


def fits_whole(program: Program, device: Device) -> bool:
    """Say whether all buffers fit in fast memory together, each for its whole live range.

    True means that a packing was found (first fit, in four orders): then there is no choice to make between buffers.
    False is certain when a buffer or the peak of live bytes exceeds the capacity; between that and a found packing
    the answer may be a false "no".
    """
    size = program.buffer_size
    live = np.flatnonzero((size > 0) & (program.buffer_end > program.buffer_start))
    if not len(live):
        return True
    if int(size[live].max()) > device.capacity_bytes:
        return False
    alignment = device.alignment_bytes
    rounded = -(-size[live] // alignment) * alignment
    start, end = program.buffer_start[live].astype(np.int64), program.buffer_end[live].astype(np.int64)
    change = np.zeros(program.steps + 2, np.int64)
    np.add.at(change, start, rounded)
    np.add.at(change, end, -rounded)
    # The topmost buffer may end at a capacity that is not aligned itself.
    if int(np.cumsum(change).max()) > -(-device.capacity_bytes // alignment) * alignment:
        return False
    duration = end - start
    orders = (
        np.lexsort((start, -rounded)),
        np.lexsort((-rounded, -duration)),
        np.lexsort((start, -duration.astype(float) * rounded)),
        np.lexsort((-rounded, start)),
    )
    return any(first_fit_packs(order, size[live], rounded, start, end, device.capacity_bytes) for order in orders)


@njit(cache=True, nogil=True)
def first_fit_packs(order: Any, size: Any, rounded: Any, start: Any, end: Any, capacity: int) -> bool:
    """Place each buffer at the lowest free offset, in order; say whether all end below the capacity."""
    placed = np.empty(len(order), np.int64)  # ascending offset
    offset = np.empty(len(order), np.int64)
    for count in range(len(order)):
        item = order[count]
        low = 0
        for index in range(count):
            other = placed[index]
            if start[other] >= end[item] or start[item] >= end[other]:
                continue
            if low + size[item] <= offset[other]:
                break
            low = max(low, offset[other] + rounded[other])
        if low + size[item] > capacity:
            return False
        offset[item] = low
        place = count
        while place > 0 and offset[placed[place - 1]] > low:
            placed[place] = placed[place - 1]
            place -= 1
        placed[place] = item
    return True
