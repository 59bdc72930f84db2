import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.bound import first_fit_packs, fits_whole, lower_bound
from accelsim.mapping import COLUMNS, Mapping, validate
from accelsim.simulator import MappingBatch, Simulator
from tests.accelsim.programs import SMALL, program_of, random_mapping, random_program

SEEDS = st.integers(0, 10**6)


def legal_windows(program, buffer, offset):
    """List all sets of at most two windows in which the buffer alone is legal, each a list of mapping rows."""
    times = range(program.steps + 1)
    single = []
    for start, ready, end in itertools.product(times, times, times):
        if start <= ready < end:
            for prefetched, evict in itertools.product((False, True), (-1, *range(ready + 1, end + 1))):
                single.append((buffer, offset, start, ready, end, prefetched, evict))
    legal = [rows for rows in ([[]] + [[row] for row in single]) if not validate(program, SMALL, built(program, rows))]
    pairs = ([first, second] for first in single for second in single if first[4] <= second[2] and second[5])
    return legal + [rows for rows in pairs if not validate(program, SMALL, built(program, rows))]


def built(program, rows):
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    return Mapping.from_residencies(program, **dict(zip(COLUMNS, columns, strict=True)))


def optimum(program):
    """Try every legal mapping of a program whose buffers all fit side by side; more room never matters."""
    offsets = np.cumsum([0, *(-(-program.buffer_size // 8) * 8)])
    choices = [legal_windows(program, buffer, int(offsets[buffer])) for buffer in range(program.buffers)]
    assert all(choices)
    mappings = [built(program, sum(rows, [])) for rows in itertools.product(*choices)]
    return int(Simulator(program, SMALL).latencies(MappingBatch.of(program, mappings)).min()), len(mappings)


def test_no_mapping_of_a_tiny_program_goes_below_the_bound():
    tight, tried = 0, 0
    for seed in range(30):
        program = random_program(seed, steps=4 - seed % 2, buffers=2, most_bytes=500)
        best, count = optimum(program)
        bound = lower_bound(program, SMALL)
        assert bound <= best <= Simulator(program, SMALL).latency(Mapping.all_slow(program)), program.notes
        tight += bound == best
        tried += count
    assert tried > 2000
    assert tight >= 8  # a bound of zero would hold as well


@given(seed=SEEDS, capacity=st.sampled_from([8, 256, 1024, 4096, 2**16]))
def test_no_random_mapping_goes_below_the_bound(seed, capacity):
    program = random_program(seed)
    device = SMALL.with_capacity(capacity)
    mapping = random_mapping(program, device, seed)
    assert lower_bound(program, device) <= Simulator(program, device).latency(mapping)


@given(seed=SEEDS)
def test_the_bound_does_not_rise_with_capacity(seed):
    program = random_program(seed)
    bounds = [lower_bound(program, SMALL.with_capacity(capacity)) for capacity in (8, 200, 800, 2000, 8000)]
    assert bounds == sorted(bounds, reverse=True)


@given(seed=SEEDS)
def test_the_bound_is_above_zero_for_anything_that_takes_time(seed):
    program = random_program(seed, steps=3, buffers=1)
    busy = bool(program.step_flops.any() or program.access_bytes.any())
    assert (lower_bound(program, SMALL) > 0) == busy


def test_a_single_flop_or_byte_is_enough():
    fastest = dataclasses.replace(SMALL, flops_per_second=10**20, fast_read_bytes_per_second=10**17)
    assert lower_bound(program_of(steps=[{"flops": 1}], sizes={}), fastest) == 1
    reads = program_of(steps=[{"reads": [("a", 1)]}], sizes={"a": 1}, inputs=("a",))
    assert lower_bound(reads, fastest) >= 1


def test_temporaries_may_live_in_fast_memory():
    program = program_of(steps=[{"writes": ["t"], "flops": 150}, {"reads": ["t"], "repeat": 1}], sizes={"t": 100})
    assert lower_bound(program, SMALL) == 200 + 100
    assert lower_bound(program, SMALL.with_capacity(96)) == 1000 + 1000


def test_an_input_costs_a_copy_or_its_accesses():
    sizes = {"a": 100}
    once = program_of(steps=[{"reads": ["a"]}], sizes=sizes, inputs=("a",))
    assert lower_bound(once, SMALL) == 1000
    twice = program_of(steps=[{"reads": ["a"]}, {"reads": ["a"]}], sizes=sizes, inputs=("a",))
    assert lower_bound(twice, SMALL) == 1007
    part = program_of(steps=[{"reads": [("a", 10)]}, {"reads": [("a", 10)]}], sizes=sizes, inputs=("a",))
    assert lower_bound(part, SMALL) == 200


def test_an_output_costs_an_eviction_or_its_last_write():
    steps = [{"writes": ["x"]}, {"reads": ["x"], "writes": [("x", 10)]}]
    program = program_of(steps=steps, sizes={"x": 100}, outputs=("x",))
    assert lower_bound(program, SMALL) == 200 + 100 + 20
    program = program_of(steps=[{"writes": ["x"]}], sizes={"x": 100}, outputs=("x",))
    assert lower_bound(program, SMALL) == 1000


def test_an_empty_program_is_bounded_by_zero():
    assert lower_bound(program_of(steps=[], sizes={}), SMALL) == 0


def packing_exists(program, device):
    """Try every order; placing at the lowest free offset in the right one finds a packing if there is any."""
    live = [
        (int(size), int(start), int(end))
        for size, start, end in zip(program.buffer_size, program.buffer_start, program.buffer_end, strict=True)
        if size and end > start
    ]
    for order in itertools.permutations(live):
        placed = []
        for size, start, end in order:
            rivals = [(low, other) for low, other, s, e in placed if s < end and start < e]
            offsets = sorted({0, *(-(-(low + other) // 8) * 8 for low, other in rivals)})
            free = [o for o in offsets if all(o + size <= low or low + other <= o for low, other in rivals)]
            placed.append((free[0], size, start, end))
        if all(low + size <= device.capacity_bytes for low, size, _, _ in placed):
            return True
    return False


@given(seed=SEEDS, capacity=st.integers(8, 3000))
def test_what_fits_has_a_packing(seed, capacity):
    program = random_program(seed, steps=8, buffers=5, most_bytes=1000)
    device = SMALL.with_capacity(capacity)
    if fits_whole(program, device):
        assert packing_exists(program, device)


def test_it_finds_nearly_every_packing_of_a_few_buffers():
    found = missed = 0
    for seed in range(150):
        program = random_program(seed, steps=8, buffers=5, most_bytes=1000)
        device = SMALL.with_capacity(1200 + seed * 8)
        if packing_exists(program, device):
            found += fits_whole(program, device)
            missed += not fits_whole(program, device)
    assert found > 25
    assert missed <= found // 10


@pytest.mark.parametrize(
    ("capacity", "fits"), [(200, False), (207, False), (208 + 99, False), (208 + 100, True), (10**6, True)]
)
def test_buffers_that_live_together_need_room_together(capacity, fits):
    sizes = {"a": 100, "b": 100, "c": 100}
    program = program_of(steps=[{"reads": list(sizes)}], sizes=sizes, inputs=tuple(sizes))
    assert fits_whole(program, SMALL.with_capacity(capacity)) is fits


def test_buffers_that_live_apart_share_room():
    steps = [{"writes": ["s"]}, {"reads": ["s"]}, {"writes": ["t"]}, {"reads": ["t"]}]
    program = program_of(steps=steps, sizes={"s": 100, "t": 100})
    assert fits_whole(program, SMALL.with_capacity(100))
    assert not fits_whole(program, SMALL.with_capacity(99))


@pytest.mark.parametrize(("capacity", "fits"), [(120, False), (153, False), (154, True)])
def test_a_buffer_is_placed_above_all_that_it_meets(capacity, fits):
    # The second buffer ends lower than the first, at another time; the third meets both.
    size, rounded = np.array([100, 60, 50]), np.array([104, 64, 56])
    start, end = np.array([0, 2, 0]), np.array([2, 4, 4])
    assert first_fit_packs(np.arange(3), size, rounded, start, end, capacity) is fits


def test_a_buffer_above_the_capacity_does_not_fit():
    program = program_of(steps=[{"reads": ["a"]}], sizes={"a": 4097}, inputs=("a",))
    assert not fits_whole(program, SMALL)


def test_nothing_and_empty_buffers_fit():
    assert fits_whole(program_of(steps=[], sizes={}), SMALL)
    assert fits_whole(program_of(steps=[{"writes": ["e"]}], sizes={"e": 0}), SMALL)
