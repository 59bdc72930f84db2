"""Benefit per byte, best fit."""

from __future__ import annotations

import numpy as np
from numba import njit

from search.memory.handle import handle
from search.memory.placement import OUT, Board, clear, place_buffer, remove_last, score, settle
from search.memory.problem import Problem
from search.memory.tables import Int32, Tables


@njit(cache=True, nogil=True)
def _greedy(tables: Tables, board: Board, order: Int32, choice: Int32, most: int) -> int:
    tables, board = handle(tables), handle(board)
    clear(tables, board)
    best = score(tables, board)
    evaluations = 1
    before = board.reserved.copy()
    for buffer in order:
        if evaluations >= most:
            choice[buffer] = OUT
            continue
        if place_buffer(tables, board, buffer, 0) == 0:
            continue
        latency = score(tables, board)
        evaluations += 1
        if latency < best:
            best = latency
            before[:] = board.reserved
        else:
            board.reserved[:] = before
            remove_last(tables, board)
            for step in range(tables.steps):
                settle(tables, board, step)
            choice[buffer] = OUT
    return evaluations


def greedy(problem: Problem, board: Board, *, most: int = 2**62) -> tuple[Int32, int]:
    """Fill the board with one buffer after another for their whole lives, the most benefit per byte first.

    The benefit is what the steps gain, limited by the roofline. A buffer stays only if the simulator says that the
    latency falls, so the result is never above all-slow.

    Returns:
        The choice `int32[N]` that `decode` turns into the same board, and the number of evaluations, at most `most`.
    """
    choice = np.full(problem.program.buffers, OUT, np.int32)
    choice[problem.items] = 0
    evaluations = _greedy(problem.tables, board, problem.items, choice, most)
    return choice, int(evaluations)
