"""The machine's rules, one hand-computed case each, then simulator == reference on random programs.

`SMALL` has 1 ps a flop; a byte takes 10 ps from slow memory, 1 ps read from and 2 ps written to fast memory, and a
copy takes 7 ps plus 10 ps a byte.
"""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim import reference
from accelsim.cost import Costs
from accelsim.mapping import COLUMNS, Mapping, validate
from accelsim.simulator import MappingBatch, Simulator, score_residencies
from tests.accelsim.programs import SMALL, program_of, random_mapping, random_program

SEEDS = st.integers(0, 10**6)


def simulate(program, *rows, device=SMALL):
    """Return the latency of a legal mapping of rows (buffer, offset, start, ready, end, prefetched, evict)."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    mapping = Mapping.from_residencies(program, **dict(zip(COLUMNS, columns, strict=True)))
    assert validate(program, device, mapping) == []
    simulator = Simulator(program, device)
    latency = simulator.latency(mapping)
    assert latency == reference.latency(program, simulator.costs, mapping)
    return latency


def reading(*reads, flops=0, **more):
    return {"reads": reads, "flops": flops, **more}


def test_a_step_takes_its_compute_time_when_that_is_longer():
    program = program_of(steps=[reading("a", flops=5000)], sizes={"a": 100}, inputs=("a",))
    assert simulate(program) == 5000


def test_a_step_takes_its_memory_time_when_that_is_longer():
    program = program_of(steps=[reading("a", flops=10)], sizes={"a": 100}, inputs=("a",))
    assert simulate(program) == 1000


def test_the_memory_time_is_the_sum_over_operands_and_results():
    step = {"reads": ["a", ("a", 30)], "writes": ["b"]}
    program = program_of(steps=[step], sizes={"a": 100, "b": 50}, inputs=("a",))
    assert simulate(program) == 1000 + 300 + 500


def test_fast_memory_is_read_and_written_at_its_own_rates():
    program = program_of(steps=[{"writes": ["t"]}, reading("t")], sizes={"t": 100})
    assert simulate(program) == 1000 + 1000
    assert simulate(program, (0, 0, 0, 0, 2, False, -1)) == 200 + 100


def test_a_step_may_use_both_memories():
    program = program_of(steps=[{"writes": ["t"]}, reading("t", "a")], sizes={"t": 100, "a": 10}, inputs=("a",))
    assert simulate(program, (0, 0, 0, 0, 2, False, -1)) == 200 + (100 + 100)


def test_a_prefetch_hides_behind_compute():
    program = program_of(steps=[{"flops": 5000}, reading("a")], sizes={"a": 100}, inputs=("a",))
    assert simulate(program, (0, 0, 0, 1, 2, True, -1)) == 5000 + 100


def test_a_late_prefetch_stalls_the_machine():
    program = program_of(steps=[{"flops": 500}, reading("a")], sizes={"a": 100}, inputs=("a",))
    assert simulate(program, (0, 0, 0, 1, 2, True, -1)) == 500 + (1007 - 500) + 100


def test_a_copy_that_is_awaited_where_it_is_issued_stalls_for_all_of_it():
    program = program_of(steps=[{"flops": 500}, reading("a")], sizes={"a": 100}, inputs=("a",))
    assert simulate(program, (0, 0, 1, 1, 2, True, -1)) == 500 + 1007 + 100


def test_slow_accesses_leave_no_time_for_copies():
    sizes = {"a": 100, "b": 200}
    program = program_of(steps=[reading("b"), reading("a")], sizes=sizes, inputs=("a", "b"))
    assert simulate(program, (0, 0, 0, 1, 2, True, -1)) == 2000 + 1007 + 100


def test_fast_accesses_leave_their_time_for_copies():
    steps = [{"writes": ["t"]}, reading("t"), reading("a")]
    program = program_of(steps=steps, sizes={"t": 100, "a": 20}, inputs=("a",))
    rows = (0, 0, 0, 0, 2, False, -1), (1, 104, 0, 2, 3, True, -1)
    assert simulate(program, *rows) == 200 + 100 + 0 + 20  # 207 ps of copying fit in 300


def test_an_eviction_goes_before_a_prefetch_of_the_same_step_and_delays_it():
    steps = [{"writes": ["x"]}, {"flops": 500}, reading("a")]
    program = program_of(steps=steps, sizes={"a": 100, "x": 100}, inputs=("a",), outputs=("x",))
    rows = (1, 0, 0, 0, 3, False, 1), (0, 104, 1, 2, 3, True, -1)
    assert simulate(program, *rows) == 200 + 500 + (2014 - 500) + 100


def test_copies_of_one_step_and_direction_go_by_buffer():
    steps = [{"flops": 1007}, reading("b"), reading("a")]
    program = program_of(steps=steps, sizes={"a": 100, "b": 100}, inputs=("a", "b"))
    rows = (0, 0, 0, 2, 3, True, -1), (1, 104, 0, 1, 2, True, -1)
    assert simulate(program, *rows) == 1007 + 1007 + 100 + 100  # b waits behind a


def test_a_wait_is_not_for_newer_copies():
    steps = [{"flops": 1007}, reading("a"), reading("b")]
    program = program_of(steps=steps, sizes={"a": 100, "b": 100}, inputs=("a", "b"))
    rows = (0, 0, 0, 1, 2, True, -1), (1, 104, 0, 2, 3, True, -1)
    assert simulate(program, *rows) == 1007 + 100 + (1007 - 100) + 100


def test_a_wait_is_for_all_older_copies():
    steps = [{}, {"flops": 100}, reading("a"), reading("b")]
    program = program_of(steps=steps, sizes={"a": 100, "b": 100}, inputs=("a", "b"))
    rows = (1, 0, 0, 3, 4, True, -1), (0, 104, 1, 2, 3, True, -1)
    assert simulate(program, *rows) == 100 + (2014 - 100) + 100 + 100


def test_an_eviction_is_awaited_at_the_end_of_the_program():
    program = program_of(steps=[{"writes": ["x"]}], sizes={"x": 100}, outputs=("x",))
    assert simulate(program, (0, 0, 0, 0, 1, False, 1)) == 200 + 1007


def test_an_eviction_hides_behind_later_steps():
    program = program_of(steps=[{"writes": ["x"]}, {"flops": 900}], sizes={"x": 100}, outputs=("x",))
    assert simulate(program, (0, 0, 0, 0, 2, False, 1)) == 200 + 900 + 107


def test_an_eviction_is_awaited_where_its_space_ends():
    steps = [{"writes": ["x"]}, {"flops": 300}, {"flops": 5000}]
    program = program_of(steps=steps, sizes={"x": 100}, outputs=("x",))
    assert simulate(program, (0, 0, 0, 0, 2, False, 1)) == 200 + 300 + 707 + 5000


def test_a_loop_multiplies_the_time_of_its_steps():
    steps = [reading("a", flops=300, region=0, repeat=10), {"flops": 7, "region": 0, "repeat": 20}]
    program = program_of(steps=steps, sizes={"a": 100}, inputs=("a",))
    assert simulate(program) == 10 * 1000 + 20 * 7
    assert simulate(program, (0, 0, 0, 0, 2, True, -1)) == 1007 + 10 * 300 + 20 * 7


def test_all_iterations_of_a_loop_drain_the_queue():
    steps = [{"flops": 100, "region": 0, "repeat": 10}, reading("a")]
    program = program_of(steps=steps, sizes={"a": 100}, inputs=("a",))
    assert simulate(program, (0, 0, 0, 1, 2, True, -1)) == 1000 + 7 + 100


def test_each_copy_pays_the_dma_latency():
    steps = [{}, reading("a", "b")]
    program = program_of(steps=steps, sizes={"a": 10, "b": 10}, inputs=("a", "b"))
    rows = (0, 0, 0, 1, 2, True, -1), (1, 16, 0, 1, 2, True, -1)
    for latency in (0, 7, 1000):
        device = dataclasses.replace(SMALL, dma_latency_ps=latency)
        assert simulate(program, *rows, device=device) == 2 * (latency + 100) + 20


def test_an_empty_program_takes_no_time():
    assert simulate(program_of(steps=[], sizes={})) == 0


def test_a_prefetch_hidden_to_the_picosecond_does_not_stall():
    for flops, stall in ((1006, 1), (1007, 0), (1008, 0)):
        program = program_of(steps=[{"flops": flops}, reading("a")], sizes={"a": 100}, inputs=("a",))
        assert simulate(program, (0, 0, 0, 1, 2, True, -1)) == flops + stall + 100


def test_the_timeline_says_where_the_time_goes():
    steps = [{"flops": 500}, reading("a"), {"writes": ["x"], "flops": 300}]
    program = program_of(steps=steps, sizes={"a": 100, "x": 10}, inputs=("a",), outputs=("x",))
    rows = {"buffer": [0, 1], "offset": [0, 104], "start": [0, 2], "ready": [1, 2], "end": [2, 3]}
    mapping = Mapping.from_residencies(program, **rows, prefetched=[True, False], evict=[-1, 3])
    timeline = Simulator(program, SMALL).timeline(mapping)
    assert timeline.elapsed.tolist() == [500, 100, 300]
    assert timeline.stall.tolist() == [0, 507, 0, 107]
    assert timeline.backlog.tolist() == [1007, 0, 0, 0]
    assert timeline.latency == 500 + 507 + 100 + 300 + 107


@given(seed=SEEDS, steps=st.integers(1, 40), buffers=st.integers(0, 20), size=st.sampled_from([40, 1500, 4000]))
def test_the_batch_equals_the_reference(seed, steps, buffers, size):
    program = random_program(seed, steps=steps, buffers=buffers, most_bytes=size)
    simulator = Simulator(program, SMALL)
    mappings = [random_mapping(program, SMALL, seed + number, tries=40) for number in range(4)]
    mappings.append(Mapping.all_slow(program))
    expected = [reference.latency(program, simulator.costs, mapping) for mapping in mappings]
    assert simulator.latencies(MappingBatch.of(program, mappings)).tolist() == expected
    assert [simulator.latency(mapping) for mapping in mappings] == expected
    assert [simulator.timeline(mapping).latency for mapping in mappings] == expected


@given(seed=SEEDS)
def test_compiled_code_scores_residencies_in_any_order(seed):
    program = random_program(seed)
    simulator = Simulator(program, SMALL)
    mapping = random_mapping(program, SMALL, seed)
    order = np.random.default_rng(seed).permutation(mapping.residencies)
    costs = simulator.costs
    latency = score_residencies(
        costs.compute_ps,
        costs.repeat,
        simulator.step_first,
        costs.slow_ps,
        costs.fast_ps,
        costs.copy_ps,
        simulator.buffer_first,
        simulator.buffer_access,
        program.access_step,
        *(getattr(mapping, name)[order] for name in COLUMNS if name != "offset"),
    )
    assert latency == simulator.latency(mapping)


def test_an_empty_batch_has_no_latencies():
    program = random_program(1)
    assert Simulator(program, SMALL).latencies(MappingBatch.of(program, [])).tolist() == []


@given(seed=SEEDS)
def test_every_copy_is_done_at_the_end(seed):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    simulator = Simulator(program, SMALL)
    timeline = simulator.timeline(mapping)
    copies = MappingBatch.of(program, [mapping])
    assert timeline.backlog[-1] == 0
    assert (timeline.backlog >= 0).all() and (timeline.stall >= 0).all()
    assert timeline.stall.sum() <= simulator.costs.copy_ps[copies.copy_buffer].sum()


RATES = (
    "flops_per_second",
    "slow_bytes_per_second",
    "fast_read_bytes_per_second",
    "fast_write_bytes_per_second",
    "dma_bytes_per_second",
)


@pytest.mark.parametrize("rate", RATES)
@given(seed=SEEDS, factor=st.floats(1, 9.9))
def test_a_faster_machine_never_makes_a_mapping_slower(rate, seed, factor):
    # Holds exactly: rounding up is monotone, and time taken from a step is taken from its idle time at most once.
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    faster = dataclasses.replace(SMALL, **{rate: int(getattr(SMALL, rate) * factor)})
    assert Simulator(program, faster).latency(mapping) <= Simulator(program, SMALL).latency(mapping)


@given(seed=SEEDS, factor=st.sampled_from([2, 5, 10]))
def test_a_machine_that_is_slower_in_everything_scales_the_latency(seed, factor):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    slower = {rate: getattr(SMALL, rate) // factor for rate in RATES}
    device = dataclasses.replace(SMALL, **slower, dma_latency_ps=SMALL.dma_latency_ps * factor)
    assert Simulator(program, device).latency(mapping) == factor * Simulator(program, SMALL).latency(mapping)


def test_relabelling_the_buffers_changes_nothing_unless_it_reorders_copies():
    relabelled = 0
    for seed in range(120):
        program = random_program(seed)
        mapping = random_mapping(program, SMALL, seed, tries=12)
        issues = [*zip(mapping.evict, [0] * 99, strict=False), *zip(mapping.start, mapping.prefetched, strict=True)]
        issues = [
            (step, kind)
            for (step, kind), copied in zip(issues, [*(mapping.evict >= 0), *mapping.prefetched], strict=True)
            if copied
        ]
        if len(set(issues)) < len(issues):
            continue
        other = reverse_buffers(program)
        last = program.buffers - 1
        columns = {name: getattr(mapping, name) for name in COLUMNS}
        moved = Mapping.from_residencies(other, **{**columns, "buffer": last - mapping.buffer})
        assert validate(other, SMALL, moved) == []
        assert Simulator(other, SMALL).latency(moved) == Simulator(program, SMALL).latency(mapping)
        relabelled += mapping.residencies > 1
    assert relabelled > 30


def reverse_buffers(program):
    columns = {
        name: getattr(program, name)[::-1]
        for name in ("buffer_name", "buffer_size", "buffer_start", "buffer_end", "buffer_input", "buffer_output")
    }
    last = program.buffers - 1
    return dataclasses.replace(
        program, **columns, access_buffer=last - program.access_buffer, value_buffer=last - program.value_buffer
    )


def test_costs_and_simulator_agree_about_the_columns():
    program = random_program(5)
    costs, simulator = Costs.of(program, SMALL), Simulator(program, SMALL)
    assert (costs.slow_ps == simulator.costs.slow_ps).all()
    for step in range(program.steps):
        low, high = simulator.step_first[step : step + 2]
        assert (program.access_step[low:high] == step).all()
    assert simulator.step_first[-1] == program.accesses
    for buffer in range(program.buffers):
        low, high = simulator.buffer_first[buffer : buffer + 2]
        assert simulator.buffer_access[low:high].tolist() == np.flatnonzero(program.access_buffer == buffer).tolist()
