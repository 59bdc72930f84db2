"""A program on a device, with all that every memory solver needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from accelsim.bound import fits_whole, lower_bound
from accelsim.device import Device
from accelsim.mapping import Mapping, check
from accelsim.program import Program
from accelsim.simulator import Simulator
from search.memory.placement import Board, benefits, empty_board
from search.memory.tables import Int32, tables_of


class Problem:
    """Which buffers of a program should be in fast memory, when, and where?

    Attributes:
        path: where the program is stored, so that evaluators in other processes can load it.
        gain: `int64[N]` what the steps gain, in ps, if this buffer alone is in fast memory.
        items: `int32[M]` the buffers that can gain anything in fast memory, most benefit per byte first.
    """

    def __init__(self, program: Program, device: Device, *, path: Path) -> None:
        self.program = program
        self.device = device
        self.path = path
        self.simulator = Simulator(program, device)
        self.tables = tables_of(self.simulator)
        self.all_slow = Mapping.all_slow(program)
        self.all_slow_ps = self.simulator.latency(self.all_slow)
        self.bound = lower_bound(program, device)
        self.fits = fits_whole(program, device)
        gain = self.gain = benefits(self.tables)
        size = program.buffer_size
        useful = np.flatnonzero((gain > 0) & (size > 0) & (size <= device.capacity_bytes))
        self.items: Int32 = useful[np.lexsort((useful, -(gain[useful] / size[useful])))].astype(np.int32)

    @property
    def where(self) -> dict[str, Any]:
        """The problem as an evaluator in another process finds it."""
        return {"program": str(self.path), "device": dataclasses.asdict(self.device)}

    def board(self) -> Board:
        return empty_board(self.tables)

    def mapping_of(self, board: Board) -> Mapping:
        """Return what is on the board as a mapping that has been checked.

        Raises:
            InputError: the mapping is illegal; a solver has a bug.
        """
        count = int(board.length[0])
        names = ("buffer", "offset", "start", "ready", "end", "prefetched", "evict")
        mapping = Mapping.from_residencies(self.program, **{name: getattr(board, name)[:count] for name in names})
        check(self.program, self.device, mapping)
        return mapping


def load_problem(where: dict[str, Any]) -> Problem:
    """Open what `Problem.where` describes."""
    path = Path(where["program"])
    return Problem(Program.load(path), Device(**where["device"]), path=path)
