"""The simulator again, in plain Python with an explicit list of copies: slow, and simple enough to check by eye."""

from __future__ import annotations

from dataclasses import dataclass

from accelsim.cost import Costs
from accelsim.mapping import Mapping
from accelsim.program import Program


@dataclass(slots=True)
class _Copy:
    awaited_before: int  # step
    left_ps: int


class _Dma:
    """One engine that serves its copies strictly in the order in which they were issued."""

    def __init__(self) -> None:
        self.queue: list[_Copy] = []

    def transfer(self, available_ps: int) -> None:
        while self.queue and available_ps >= self.queue[0].left_ps:
            available_ps -= self.queue.pop(0).left_ps
        if self.queue:
            self.queue[0].left_ps -= available_ps

    def wait(self, step: int) -> int:
        """Finish every copy that is awaited before the step and return how long that takes."""
        stall = 0
        while any(copy.awaited_before == step for copy in self.queue):
            stall += self.queue.pop(0).left_ps
        return stall


def latency(program: Program, costs: Costs, mapping: Mapping) -> int:
    """Return the latency of one legal mapping in picoseconds."""
    windows: dict[int, list[tuple[int, int]]] = {}  # buffer -> the steps in which it can be read from fast memory
    issued: dict[int, list[tuple[int, int, int, int]]] = {}  # step -> (0 eviction or 1 prefetch, buffer, row, wait)
    for row in range(len(mapping.buffer)):
        buffer = int(mapping.buffer[row])
        windows.setdefault(buffer, []).append((int(mapping.ready[row]), int(mapping.end[row])))
        if mapping.prefetched[row]:
            issued.setdefault(int(mapping.start[row]), []).append((1, buffer, row, int(mapping.ready[row])))
        if mapping.evict[row] >= 0:
            issued.setdefault(int(mapping.evict[row]), []).append((0, buffer, row, int(mapping.end[row])))
    served: dict[int, list[int]] = {}
    for access in range(program.accesses):
        served.setdefault(int(program.access_step[access]), []).append(access)

    dma = _Dma()
    total = 0
    for step in range(program.steps + 1):
        for _, buffer, _, wait in sorted(issued.get(step, [])):
            dma.queue.append(_Copy(wait, int(costs.copy_ps[buffer])))
        total += dma.wait(step)
        if step == program.steps:
            break
        slow = fast = 0
        for access in served.get(step, []):
            buffer = int(program.access_buffer[access])
            if any(ready <= step < end for ready, end in windows.get(buffer, [])):
                fast += int(costs.fast_ps[access])
            else:
                slow += int(costs.slow_ps[access])
        busy = max(int(costs.compute_ps[step]), slow + fast)
        repeat = int(costs.repeat[step])
        total += repeat * busy
        dma.transfer(repeat * (busy - slow))
    return total
