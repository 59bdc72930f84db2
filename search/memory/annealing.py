"""Simulated annealing over the order in which buffers are placed, and over how each of them is placed.

Genotype: a permutation of the M useful buffers, and a choice for each (see `placement.OUT`). `placement.decode` turns
it into a mapping. A chain is a JSON object; advancing it by any number of moves, in any process, gives the same chain
as one advance by their sum: random numbers come from the chain's own generator, and the temperature depends on the
number of moves alone. Cycles of doubling length end near any budget, so the budget is no part of the schedule.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from search.memory.handle import handle
from search.memory.placement import OUT, SPLIT, Board, decode
from search.memory.problem import Problem
from search.memory.settings import Annealing
from search.memory.tables import Int32, Tables

Int64 = NDArray[np.int64]
Uint64 = NDArray[np.uint64]

_MOST_CUTS = 4


@njit(cache=True, nogil=True)
def _random(state: Uint64) -> Any:
    """Advance a splitmix64 generator."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@njit(cache=True, nogil=True)
def _below(state: Uint64, limit: int) -> Any:
    return np.int64(_random(state) % np.uint64(limit))


@njit(cache=True, nogil=True)
def _uniform(state: Uint64) -> float:
    return float(_random(state) >> np.uint64(11)) / 9007199254740992.0


@njit(cache=True, nogil=True)
def _shift(order: Int32, source: int, target: int) -> None:
    """Move one entry of the order to another place."""
    moved = order[source]
    if target < source:
        for place in range(source, target, -1):
            order[place] = order[place - 1]
    else:
        for place in range(source, target):
            order[place] = order[place + 1]
    order[target] = moved


@njit(cache=True, nogil=True)
def _new_choice(tables: Tables, state: Uint64, buffer: int, old: int) -> Any:
    """Draw another choice for a buffer: `SPLIT`, `OUT`, whole, or cut at up to `_MOST_CUTS` of its longest gaps."""
    gaps = 0 if tables.inside[buffer] else tables.event_first[buffer + 1] - tables.event_first[buffer] - 1
    kinds = min(gaps, _MOST_CUTS) + 3
    return (old - SPLIT + 1 + _below(state, kinds - 1)) % kinds + SPLIT


@njit(cache=True, nogil=True)
def _anneal(
    tables: Tables,
    board: Board,
    gain: Int64,
    order: Int32,
    choice: Int32,
    best_order: Int32,
    best_choice: Int32,
    state: Uint64,
    numbers: Int64,
    hot: float,
    cold: float,
    moves: int,
    found: Int64,
) -> int:
    """Advance a chain in place.

    Args:
        gain: `int64[N]`, what a buffer alone can win in ps.
        numbers: `int64[5]`: latency, best latency, moves made, start and length of the current cycle.
        hot, cold: temperatures in ps.
        found: `int64[moves, 2]`: filled with the move and the latency of each improvement; returns how many.
    """
    tables, board = handle(tables), handle(board)
    items = len(order)
    improvements = 0
    for _ in range(moves):
        if numbers[2] - numbers[3] >= numbers[4]:
            numbers[3] += numbers[4]
            numbers[4] *= 2
            order[:] = best_order
            choice[:] = best_choice
            numbers[0] = numbers[1]
        share = (numbers[2] - numbers[3]) / numbers[4]
        temperature = hot * (cold / hot) ** share
        numbers[2] += 1

        kind = _uniform(state)
        source = _below(state, items)
        if kind < 0.5:
            # Few buffers hold most of what can be won: half the moves are about the larger gain of two.
            other = _below(state, items)
            if gain[order[other]] > gain[order[source]]:
                source = other
            kind *= 2
        else:
            kind = kind * 2 - 1
        target = source
        buffer = order[source]
        old_choice = choice[buffer]
        if kind < 0.4:
            choice[buffer] = _new_choice(tables, state, buffer, old_choice)
        else:
            if kind < 0.55:
                target = _below(state, source + 1) // 4  # to the front, where there is room for anything
            elif kind < 0.75:
                target = _below(state, items)
            else:
                target = min(items - 1, max(0, source + _below(state, 33) - 16))
            _shift(order, source, target)
            if old_choice == OUT:
                choice[buffer] = SPLIT

        latency = decode(tables, board, order, choice)
        change = latency - numbers[0]
        if change <= 0 or _uniform(state) < math.exp(-change / temperature):
            numbers[0] = latency
            if latency < numbers[1]:
                numbers[1] = latency
                best_order[:] = order
                best_choice[:] = choice
                found[improvements, 0] = numbers[2]
                found[improvements, 1] = latency
                improvements += 1
        else:
            _shift(order, target, source)
            choice[buffer] = old_choice
    return improvements


def first_guess(problem: Problem, board: Board, *, choice: Int32, latency: int) -> tuple[Int32, Int32, int, int]:
    """Choose where the chains start: greedy's own genotype, or a better one among a few other plain ones.

    Args:
        choice, latency: greedy's result.

    Returns:
        Order `int32[M]`, choice `int32[N]`, latency in ps, and the evaluations that it took.
    """
    items, gain = problem.items, problem.gain[problem.items]
    best = (items, choice, latency)
    size = problem.tables.size[items]
    orders = (items, items[np.argsort(-gain, kind="stable")], items[np.argsort(-size, kind="stable")])
    for order in orders:
        for kind in (SPLIT, 0):
            guess = np.full(problem.program.buffers, OUT, np.int32)
            guess[items] = kind
            found = int(decode(problem.tables, board, order, guess))
            if found < best[2]:
                best = (order, guess, found)
    return *best, 2 * len(orders)


def new_chain(
    problem: Problem, settings: Annealing, *, order: Int32, choice: Int32, latency: int, seed: int, index: int
) -> dict[str, Any]:
    """Start a chain at a genotype."""
    generator = np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0]
    chosen = choice[problem.items].tolist()
    return {
        "order": order.tolist(),
        "choice": chosen,
        "best_order": order.tolist(),
        "best_choice": chosen,
        "generator": int(generator),
        "numbers": [latency, latency, 0, 0, settings.first_cycle],
    }


def temperatures(problem: Problem, settings: Annealing) -> tuple[float, float]:
    """Return the hottest and the coldest temperature in ps."""
    share = (problem.all_slow_ps - problem.bound) / max(1, len(problem.items))
    unit = max(1.0, share)
    return settings.hot * unit, settings.cold * unit


def advance(problem: Problem, settings: Annealing, chain: dict[str, Any], moves: int) -> dict[str, Any]:
    """Return the chain after that many moves, and its improvements as columns `move` and `latency_ps`.

    The choices of a chain are in the order of `Problem.items`.
    """
    state = np.array([chain["generator"]], np.uint64)
    numbers = np.array(chain["numbers"], np.int64)
    order, best_order = (np.array(chain[name], np.int32) for name in ("order", "best_order"))
    choice, best_choice = (spread(problem, chain[name]) for name in ("choice", "best_choice"))
    found = np.zeros((moves, 2), np.int64)
    hot, cold = temperatures(problem, settings)
    columns = (order, choice, best_order, best_choice, state, numbers)
    count = 0
    if len(order):
        count = _anneal(problem.tables, problem.board(), problem.gain, *columns, hot, cold, moves, found)
    else:
        numbers[2] += moves
    return {
        "chain": {
            "order": order.tolist(),
            "choice": choice[problem.items].tolist(),
            "best_order": best_order.tolist(),
            "best_choice": best_choice[problem.items].tolist(),
            "generator": int(state[0]),
            "numbers": numbers.tolist(),
        },
        "move": found[:count, 0].tolist(),
        "latency_ps": found[:count, 1].tolist(),
    }


def spread(problem: Problem, chosen: list[int]) -> Int32:
    """Return the choices of `Problem.items` as one a buffer, `int32[N]`."""
    choice = np.full(problem.program.buffers, OUT, np.int32)
    choice[problem.items] = chosen
    return choice


def moves_a_round(problem: Problem) -> int:
    """Return how many moves take roughly 0.2 s, from the size of the problem alone."""
    tables, items = problem.tables, len(problem.items)
    nanoseconds = 10 * len(tables.slow_ps) + 10 * tables.steps + 500 * items + items * items // 2
    return int(min(2000, max(20, 200_000_000 // max(1, nanoseconds))))
