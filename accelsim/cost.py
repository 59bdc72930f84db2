"""How long an instruction, an access and a copy take, in integer picoseconds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.device import Device
from accelsim.errors import InputError
from accelsim.program import Program

PS_PER_SECOND = 10**12
INT64_MAX = 2**63 - 1

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Durations of T steps, K accesses and copies of N buffers. All are of one execution."""

    compute_ps: Int64  # [T]
    slow_ps: Int64  # [K] the access served from slow memory
    fast_ps: Int64  # [K] the access served from fast memory, never above slow_ps
    copy_ps: Int64  # [N] one copy of the buffer in either direction, DMA latency included
    repeat: Int64  # [T] executions of the step

    @classmethod
    def of(cls, program: Program, device: Device) -> Costs:
        """Price the program on the device; each duration is rounded up.

        Raises:
            InputError: ``cost-overflow``, a duration or the worst total does not fit in 64 bits.
        """
        moved, write = program.access_bytes, program.access_write
        read_ps = _durations(moved, device.fast_read_bytes_per_second, what="an access")
        write_ps = _durations(moved, device.fast_write_bytes_per_second, what="an access")
        copy_ps = _durations(program.buffer_size, device.dma_bytes_per_second, what="a copy")
        if program.buffers and int(copy_ps.max()) > INT64_MAX - device.dma_latency_ps:
            raise _overflow("a copy")
        costs = cls(
            compute_ps=_durations(program.step_flops, device.flops_per_second, what="an instruction"),
            slow_ps=_durations(moved, device.slow_bytes_per_second, what="an access"),
            fast_ps=np.where(write, write_ps, read_ps),
            copy_ps=copy_ps + device.dma_latency_ps,
            repeat=program.step_repeat.astype(np.int64),
        )
        costs._check_totals(program)
        return costs

    def _check_totals(self, program: Program) -> None:
        # Every later sum is at most this one: a buffer is copied at most twice a step, and each step runs
        # with all its operands in slow memory.
        steps = program.steps
        slow = [0] * steps
        for step, duration in zip(program.access_step.tolist(), self.slow_ps.tolist(), strict=True):
            slow[step] += duration
        busy = map(max, self.compute_ps.tolist(), slow)
        elapsed = sum(n * ps for n, ps in zip(self.repeat.tolist(), busy, strict=True))
        copies = 2 * (steps + 1) * sum(self.copy_ps.tolist())
        if elapsed + copies > INT64_MAX:
            raise _overflow("the whole program")


def _durations(amounts: Int64, rate: int, *, what: str) -> Int64:
    # Amount times 1e12 does not fit in int64 for 10 MB already, hence Python's integers, once per distinct amount.
    distinct, place = np.unique(amounts, return_inverse=True)
    exact = [-(-int(amount) * PS_PER_SECOND // rate) for amount in distinct.tolist()]
    if exact and (exact[-1] > INT64_MAX or int(distinct[0]) < 0):
        raise _overflow(what)
    durations: Int64 = np.array(exact, np.int64)[place].reshape(amounts.shape)
    return durations


def _overflow(what: str) -> InputError:
    return InputError(f"the time of {what} does not fit in 64 bits of picoseconds (106 days)", code="cost-overflow")
