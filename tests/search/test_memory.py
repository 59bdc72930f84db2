"""Every solver on random programs: legal, between the bound and all-slow, never below the true minimum."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from accelsim.errors import InputError
from accelsim.mapping import COLUMNS, Mapping, validate
from accelsim.simulator import MappingBatch, Simulator
from search.engine import Budget, Progress
from search.executor import InlineExecutor
from search.memory.annealing import advance, new_chain
from search.memory.greedy import greedy
from search.memory.placement import OUT, SPLIT, best_fit, clear, decode, place_buffer, remove_last
from search.memory.problem import Problem
from search.memory.run import run
from search.memory.settings import METHODS, Annealing, catalogue, parse_settings
from search.memory.xla_style import xla_style
from tests.accelsim.programs import program_of

SOLVERS = [model().model_dump()["method"] for model in METHODS]
MakeProblem = Callable[..., Problem]


def search(
    problem: Problem, method: str, *, resume: bytes | None = None, seed: int = 0, **changes: Any
) -> list[Progress]:
    budget = Budget(**{"evaluations": 600, **changes.pop("budget", {})})
    settings = parse_settings({"method": method, **changes})
    return list(run(problem, settings, budget, seed=seed, resume=resume, executor=InlineExecutor()))


def columns(mapping: Mapping) -> dict[str, list[Any]]:
    return {name: getattr(mapping, name).tolist() for name in (*COLUMNS, "access_offset")}


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("seed", range(25))
def test_every_solver_is_legal_and_between_the_bounds(problem_of: MakeProblem, method: str, seed: int) -> None:
    problem = problem_of(seed, steps=30 + seed, buffers=10 + 2 * seed)
    last = search(problem, method)[-1]
    assert validate(problem.program, problem.device, last.solution) == []
    assert last.best == Simulator(problem.program, problem.device).latency(last.solution)
    assert problem.bound <= last.best <= problem.all_slow_ps
    assert last.finished


@pytest.mark.parametrize("seed", range(200))
def test_any_genotype_decodes_to_a_legal_mapping_of_that_latency(problem_of: MakeProblem, seed: int) -> None:
    problem = problem_of(seed, steps=40, buffers=25)
    rng = np.random.default_rng(seed)
    board = problem.board()
    order = rng.permutation(problem.items).astype(np.int32)
    choice = rng.integers(SPLIT, 5, problem.program.buffers).astype(np.int32)
    latency = decode(problem.tables, board, order, choice)
    assert latency == problem.simulator.latency(problem.mapping_of(board))


def test_a_half_built_mapping_forgets_what_was_taken_off(problem_of: MakeProblem) -> None:
    problem = problem_of(5, steps=40, buffers=25)
    tables, board, fresh = problem.tables, problem.board(), problem.board()
    for buffer in problem.items:
        clear(tables, board)
        for _ in range(place_buffer(tables, board, buffer, 2)):
            remove_last(tables, board)
        for name in ("length", "used", "access_fast", "slow", "fast"):
            assert getattr(board, name).tolist() == getattr(fresh, name).tolist()


def test_best_fit_takes_the_smallest_gap_that_holds_the_bytes(problem_of: MakeProblem) -> None:
    sizes = {"a": 1000, "b": 104, "c": 500, "d": 80, "wanted": 90}
    steps: list[dict[str, object]] = [{"writes": list(sizes)}, {"reads": list(sizes)}]
    problem = problem_of(0, program=program_of(steps=steps, sizes=sizes))
    tables, board = problem.tables, problem.board()
    for buffer in range(4):
        assert place_buffer(tables, board, buffer, 0) == 1
    assert board.offset[:4].tolist() == [0, 1000, 1104, 1608]
    assert best_fit(tables, board, 90, 0, 2) == 1688
    # Without b there is a gap of 104 bytes between a and c, smaller than what is left above.
    clear(tables, board)
    for buffer in range(4):
        place_buffer(tables, board, buffer, 0)
    board.since[1] = board.until[1] = 0
    board.used[:2] -= 104
    assert best_fit(tables, board, 90, 0, 2) == 1000
    assert best_fit(tables, board, 105, 0, 2) == 1688
    assert best_fit(tables, board, 4096, 0, 2) == -1


def test_greedy_takes_the_most_benefit_per_byte_first(problem_of: MakeProblem) -> None:
    sizes = {"large": 4000, "small": 200}
    steps: list[dict[str, object]] = [
        {"writes": ["large", "small"]},
        *({"reads": ["small"]} for _ in range(3)),
        {"reads": ["large", "small"]},
    ]
    problem = problem_of(0, program=program_of(steps=steps, sizes=sizes))
    last = search(problem, "greedy")[-1]
    assert last.solution.buffer.tolist() == [1]


@pytest.mark.parametrize("most", [1, 2, 5])
def test_greedy_stops_at_the_budget(problem_of: MakeProblem, most: int) -> None:
    problem = problem_of(1, steps=60, buffers=40)
    board = problem.board()
    choice, evaluations = greedy(problem, board, most=most)
    assert evaluations == most
    assert decode(problem.tables, problem.board(), problem.items, choice) <= problem.all_slow_ps


@pytest.mark.parametrize("method", SOLVERS)
def test_the_same_seed_gives_the_same_result(problem_of: MakeProblem, method: str) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    first, second = search(problem, method, seed=7), search(problem, method, seed=7)
    assert [(p.step, p.evaluations, p.best) for p in first] == [(p.step, p.evaluations, p.best) for p in second]
    assert columns(first[-1].solution) == columns(second[-1].solution)


def test_another_seed_gives_another_search(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    bests = {search(problem, "annealing", seed=seed, budget={"evaluations": 300})[-1].best for seed in range(6)}
    assert len(bests) > 1


def test_annealing_is_no_worse_than_greedy_and_improves_on_it(problem_of: MakeProblem) -> None:
    better = 0
    for seed in range(8):
        last = search(problem_of(seed, steps=60, buffers=40), "annealing", budget={"evaluations": 2000})[-1]
        assert last.best <= last.baselines["greedy"]
        better += last.best < last.baselines["greedy"]
    assert better >= 6


def test_annealing_resumes_bit_identically_from_any_step(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    # Small rounds and cycles, so that a few steps cross several coolings.
    rounds = {"first_cycle": 30, "budget": {"evaluations": 20_000}}
    whole = search(problem, "annealing", **rounds)
    assert len(whole) > 4
    for progress in whole[:-1]:
        resumed = search(problem, "annealing", resume=progress.checkpoint(), **rounds)
        rest = [(p.step, p.evaluations, p.best, p.metrics) for p in whole[progress.step :]]
        assert [(p.step, p.evaluations, p.best, p.metrics) for p in resumed] == rest
        assert columns(resumed[-1].solution) == columns(whole[-1].solution)


def test_a_chain_does_not_care_in_how_many_pieces_it_is_advanced(problem_of: MakeProblem) -> None:
    problem = problem_of(4, steps=60, buffers=40)
    settings = Annealing(first_cycle=50)
    choice, _ = greedy(problem, problem.board())
    latency = decode(problem.tables, problem.board(), problem.items, choice)
    chain = new_chain(problem, settings, order=problem.items, choice=choice, latency=latency, seed=0, index=0)
    whole = advance(problem, settings, chain, 400)["chain"]
    pieces = chain
    for moves in (1, 99, 200, 100):
        pieces = advance(problem, settings, pieces, moves)["chain"]
    assert pieces == whole
    assert whole["numbers"][1] < latency


def test_it_refuses_the_checkpoint_of_another_seed(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    checkpoint = search(problem, "annealing", seed=1)[-1].checkpoint()
    with pytest.raises(InputError, match="another search"):
        search(problem, "annealing", seed=2, resume=checkpoint)


def test_more_evaluations_continue_a_finished_search(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    short = search(problem, "annealing", budget={"evaluations": 500})[-1]
    longer = search(problem, "annealing", resume=short.checkpoint(), budget={"evaluations": 1500})[-1]
    assert (short.evaluations, longer.evaluations) == (500, 1500)
    assert longer.best <= short.best


@pytest.mark.parametrize("evaluations", [1, 3, 57, 1001])
def test_annealing_uses_exactly_its_evaluations(problem_of: MakeProblem, evaluations: int) -> None:
    last = search(problem_of(8, steps=60, buffers=40), "annealing", budget={"evaluations": evaluations})[-1]
    assert (last.evaluations, last.finished) == (evaluations, "evaluations")


def test_it_stops_at_a_target(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    reached = search(problem, "annealing", budget={"evaluations": 10_000})[-1].best
    last = search(problem, "annealing", budget={"evaluations": 10_000, "target": reached + 1000})[-1]
    assert last.finished == "target"
    assert last.best <= reached + 1000


def test_it_stops_after_seconds_and_that_many_evaluations_again_give_the_same(problem_of: MakeProblem) -> None:
    problem = problem_of(8, steps=60, buffers=40)
    timed = search(problem, "annealing", budget={"evaluations": None, "seconds": 0.5})[-1]
    assert timed.finished == "seconds"
    counted = search(problem, "annealing", budget={"evaluations": timed.evaluations})[-1]
    assert (counted.best, counted.step) == (timed.best, timed.step)
    assert columns(counted.solution) == columns(timed.solution)


@pytest.mark.parametrize("method", SOLVERS)
def test_a_program_with_nothing_to_place_stays_in_slow_memory(problem_of: MakeProblem, method: str) -> None:
    steps: list[dict[str, object]] = [{"flops": 100}, {"flops": 50}]
    for program in (program_of(steps=steps, sizes={}), program_of(steps=[], sizes={})):
        last = search(problem_of(0, program=program), method)[-1]
        assert last.best == last.bound == last.baselines["all_slow"]
        assert last.solution.residencies == 0


@pytest.mark.slow
def test_no_solver_goes_below_the_true_minimum_and_annealing_mostly_finds_it(problem_of: MakeProblem) -> None:
    found = 0
    for seed in range(16):
        problem = problem_of(seed, steps=4, buffers=3, most_bytes=1300)
        least = minimum(problem)
        best = {method: search(problem, method)[-1].best for method in SOLVERS}
        assert all(value >= least for value in best.values()), best
        found += best["annealing"] == least
    assert found >= 12


def minimum(problem: Problem) -> int:
    """Score every combination of legal windows, up to two a buffer. Sizes are such that any three fit at one time."""
    program, device = problem.program, problem.device
    choices = []
    for buffer in range(program.buffers):
        windows = [
            (buffer, 0, start, ready, end, prefetched, evict)
            for start, ready, end in itertools.combinations_with_replacement(range(program.steps + 1), 3)
            for prefetched in (True, False)
            for evict in (-1, *range(ready + 1, end + 1))
        ]
        sets: list[tuple[tuple[int, ...], ...]] = [(), *((window,) for window in windows)]
        sets += [(one, two) for one in windows for two in windows if one[4] <= two[2] and two[5]]
        legal = [rows for rows in sets if not validate(program, device, placed(problem, rows, apart=buffer))]
        choices.append(legal)
    rows = (sum(chosen, ()) for chosen in itertools.product(*choices))
    best = problem.all_slow_ps
    while batch := list(itertools.islice(rows, 5000)):
        mappings = [placed(problem, chosen, apart=0) for chosen in batch]
        best = min(best, int(problem.simulator.latencies(MappingBatch.of(program, mappings)).min()))
    return best


def placed(problem: Problem, rows: Iterable[tuple[int, ...]], *, apart: int) -> Mapping:
    return mapping_of(problem, [(row[0], apart * 1304, *row[2:]) for row in rows])


def mapping_of(problem: Problem, rows: list[tuple[int, ...]]) -> Mapping:
    table = list(zip(*rows, strict=True)) if rows else [()] * 7
    return Mapping.from_residencies(problem.program, **dict(zip(COLUMNS, table, strict=True)))


def test_each_method_has_a_form() -> None:
    entries = catalogue()
    assert [entry["method"] for entry in entries] == ["all-slow", "greedy", "xla-style", "annealing"]
    for entry in entries:
        assert entry["title"] and entry["summary"]
        for name, field in entry["schema"]["properties"].items():
            if name != "method":
                assert {"title", "description", "default"} <= field.keys(), (entry["method"], name)
        assert parse_settings(entry["defaults"]).model_dump() == entry["defaults"]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"method": "magic"}, "magic"),
        ({}, "method"),
        ({"method": "annealing", "chains": 0}, "chains"),
        ({"method": "annealing", "colour": 1}, "colour"),
        ({"method": "annealing", "hot": 0.1, "cold": 0.2}, "cold is above hot"),
        ({"method": "xla-style", "min_overlap_ratio": 5}, "min_overlap_ratio"),
        (["annealing"], "settings"),
    ],
)
def test_it_refuses_wrong_settings_by_name(settings: object, named: str) -> None:
    with pytest.raises(InputError, match=named):
        parse_settings(settings)


def test_xla_style_evicts_and_prefetches(problem_of: MakeProblem) -> None:
    kinds = np.zeros(2, int)
    for seed in range(10):
        problem = problem_of(seed, steps=60, buffers=40)
        board = problem.board()
        xla_style(problem, board, METHODS[2]())  # type: ignore[arg-type]
        mapping = problem.mapping_of(board)
        kinds += [int(mapping.prefetched.sum()), int((mapping.evict >= 0).sum())]
    assert kinds.min() > 10


def test_out_means_out(problem_of: MakeProblem) -> None:
    problem = problem_of(1, steps=40, buffers=20)
    board = problem.board()
    nothing = np.full(problem.program.buffers, OUT, np.int32)
    assert decode(problem.tables, board, problem.items, nothing) == problem.all_slow_ps
    assert board.length[0] == 0
