"""Run a memory solver under the contract of `search.engine`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from accelsim.errors import InputError
from accelsim.mapping import Mapping
from search.engine import Budget, Executor, Meter, Progress, pack_checkpoint, unpack_checkpoint
from search.memory.annealing import first_guess, moves_a_round, new_chain, spread, temperatures
from search.memory.greedy import greedy
from search.memory.placement import decode
from search.memory.problem import Problem
from search.memory.settings import AllSlow, Annealing, Greedy, Settings, XlaStyle
from search.memory.xla_style import PLANS, xla_style

_CHAIN_ARRAYS = ("order", "choice", "best_order", "best_choice")

_XLA_STYLE = -1  # the winner is no chain but the XLA-style mapping


def run(
    problem: Problem,
    settings: Settings,
    budget: Budget,
    *,
    seed: int = 0,
    resume: bytes | None = None,
    executor: Executor,
) -> Iterator[Progress]:
    """Search for a mapping with a low latency; yield where the search is.

    The first progress has the baselines, the last one says why the search ended. An evaluation is one mapping scored
    by the simulator. Closing the iterator cancels; `Progress.checkpoint` continues bit-identically.

    Raises:
        InputError: the checkpoint is damaged or belongs to another search.
    """
    mark = identity(problem, settings, seed)
    if isinstance(settings, Annealing):
        yield from _annealing(problem, settings, budget, seed=seed, resume=resume, executor=executor, mark=mark)
        return
    if resume is not None:
        unpack_checkpoint(resume, identity=mark)  # these solvers take seconds: a resumed one starts again
    baselines = baselines_of(problem)
    meter = Meter(budget)
    mapping, evaluations = _solve(problem, settings, budget)
    meter.evaluations = evaluations
    best = problem.simulator.latency(mapping)
    header = {"identity": mark, "step": 0, "evaluations": evaluations, "seconds": 0.0}
    yield Progress(
        step=1,
        evaluations=evaluations,
        seconds=meter.seconds,
        best=best,
        baselines=baselines,
        bound=problem.bound,
        finished="complete" if evaluations != budget.evaluations else "evaluations",
        improved=True,
        solution=mapping,
        checkpoint=lambda: pack_checkpoint(header, {}),
    )


def _solve(problem: Problem, settings: AllSlow | Greedy | XlaStyle, budget: Budget) -> tuple[Mapping, int]:
    board = problem.board()
    if isinstance(settings, AllSlow):
        return problem.all_slow, 1
    if isinstance(settings, Greedy):
        _, evaluations = greedy(problem, board, most=budget.evaluations or 2**62)
    else:
        evaluations = xla_style(problem, board, settings)
    return problem.mapping_of(board), evaluations


def baselines_of(problem: Problem) -> dict[str, int]:
    """Return the latencies in ps that every search is compared with; they are no part of its evaluations."""
    board = problem.board()
    greedy(problem, board)
    by_greedy = problem.simulator.latency(problem.mapping_of(board))
    xla_style(problem, board, XlaStyle())
    by_xla_style = problem.simulator.latency(problem.mapping_of(board))
    return {"all_slow": problem.all_slow_ps, "greedy": by_greedy, "xla_style": by_xla_style}


def identity(problem: Problem, settings: Settings, seed: int) -> str:
    """Return a hash of all that decides what a search does: program, device, settings and seed."""
    digest = hashlib.sha256()
    for field in dataclasses.fields(problem.program):
        value = getattr(problem.program, field.name)
        digest.update(field.name.encode())
        digest.update(value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value).encode())
    about = [dataclasses.asdict(problem.device), settings.model_dump(), seed]
    digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()


def _annealing(
    problem: Problem,
    settings: Annealing,
    budget: Budget,
    *,
    seed: int,
    resume: bytes | None,
    executor: Executor,
    mark: str,
) -> Iterator[Progress]:
    board = problem.board()
    improved = True
    if resume is None:
        baselines = baselines_of(problem)
        meter = Meter(budget)
        choice, meter.evaluations = greedy(problem, board, most=budget.evaluations or 2**62)
        latency = decode(problem.tables, board, problem.items, choice)
        order = problem.items
        if meter.reason(latency) is None:
            order, choice, latency, tried = first_guess(problem, board, choice=choice, latency=latency)
            meter.evaluations += tried
        chains = [
            new_chain(problem, settings, order=order, choice=choice, latency=latency, seed=seed, index=index)
            for index in range(settings.chains)
        ]
        step, best, winner = 0, latency, 0
        left = meter.evaluations_left
        if meter.reason(best) is None and (left is None or left >= PLANS):
            meter.evaluations += PLANS
            if baselines["xla_style"] < best:
                best, winner = baselines["xla_style"], _XLA_STYLE
    else:
        header, arrays = unpack_checkpoint(resume, identity=mark)
        meter = Meter(budget, evaluations=header["evaluations"], seconds=header["seconds"])
        step, best, winner, baselines = header["step"], header["best"], header["winner"], header["baselines"]
        chains = [_restore(index, header, arrays) for index in range(settings.chains)]
    solution = _mapping(problem, board, chains, winner, best)
    round_moves = moves_a_round(problem)

    while True:
        finished = meter.reason(best)
        if finished is None and (best == problem.bound or not len(problem.items)):
            finished = "complete"
        now = _state(mark, chains, step=step, meter=meter, best=best, winner=winner, baselines=baselines)
        yield Progress(
            step=step,
            evaluations=meter.evaluations,
            seconds=meter.seconds,
            best=best,
            baselines=baselines,
            bound=problem.bound,
            metrics=_metrics(problem, settings, chains),
            finished=finished,
            improved=improved,
            solution=solution,
            checkpoint=lambda now=now: pack_checkpoint(*now),  # type: ignore[misc]
        )
        if finished:
            return
        shares = _shares(settings.chains, round_moves, meter.evaluations_left)
        requests = [
            {
                "kind": "memory.anneal",
                "where": problem.where,
                "settings": settings.model_dump(),
                "chain": chain,
                "moves": moves,
            }
            for chain, moves in zip(chains, shares, strict=True)
        ]
        results = list(executor.submit(requests))
        chains = [result["chain"] for result in results]
        meter.evaluations += sum(shares)
        step += 1
        # Equal latencies: the lowest index, whoever was first. The winner changes only with the best, so that a resumed
        # search has the same solution and not another one of the same latency.
        leader = min(range(len(chains)), key=lambda index: (chains[index]["numbers"][1], index))
        improved = chains[leader]["numbers"][1] < best
        if improved:
            winner, best = leader, chains[leader]["numbers"][1]
            solution = _mapping(problem, board, chains, winner, best)


def _shares(chains: int, moves: int, left: int | None) -> list[int]:
    """Share a round's moves among the chains; the last round of a budget is what is left of it."""
    if left is None or left >= chains * moves:
        return [moves] * chains
    return [left // chains + (index < left % chains) for index in range(chains)]


def _mapping(problem: Problem, board: Any, chains: list[dict[str, Any]], winner: int, best: int) -> Mapping:
    if winner == _XLA_STYLE:
        xla_style(problem, board, XlaStyle())
    else:
        order = np.array(chains[winner]["best_order"], np.int32)
        decode(problem.tables, board, order, spread(problem, chains[winner]["best_choice"]))
    mapping = problem.mapping_of(board)
    latency = problem.simulator.latency(mapping)
    if latency != best:
        raise RuntimeError(f"a chain claims {best} ps for a mapping that takes {latency} ps")
    return mapping


def _metrics(problem: Problem, settings: Annealing, chains: list[dict[str, Any]]) -> dict[str, float]:
    hot, cold = temperatures(problem, settings)
    _, _, moves, begin, length = chains[0]["numbers"]
    metrics = {"temperature_ps": hot * (cold / hot) ** min(1.0, (moves - begin) / length)}
    for index, chain in enumerate(chains):
        metrics[f"chain_{index}_ps"] = float(chain["numbers"][0])
    return metrics


def _state(
    mark: str,
    chains: list[dict[str, Any]],
    *,
    step: int,
    meter: Meter,
    best: int,
    winner: int,
    baselines: dict[str, int],
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = {
        "identity": mark,
        "step": step,
        "evaluations": meter.evaluations,
        "seconds": meter.seconds,
        "best": best,
        "winner": winner,
        "baselines": baselines,
        "chains": [{"generator": chain["generator"], "numbers": chain["numbers"]} for chain in chains],
    }
    arrays = {
        f"{name}_{index}": np.array(chain[name], np.int32)
        for index, chain in enumerate(chains)
        for name in _CHAIN_ARRAYS
    }
    return header, arrays


def _restore(index: int, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    try:
        return {**header["chains"][index], **{name: arrays[f"{name}_{index}"].tolist() for name in _CHAIN_ARRAYS}}
    except (KeyError, IndexError) as error:
        raise InputError(f"the checkpoint lacks chain {index}", code="checkpoint") from error
