"""A mapping is legal or says what is wrong: every kind of single corruption of many legal mappings is refused."""

import dataclasses
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.errors import InputError
from accelsim.mapping import COLUMNS, MOST_PROBLEMS, Mapping, check, validate
from tests.accelsim.programs import SMALL, clash, program_of, proposal, random_mapping, random_program, sound

SEEDS = st.integers(0, 10**6)


@cache
def legal_cases():
    """Many programs, each with two legal mappings of different density."""
    cases = []
    for seed in range(160):
        program = random_program(seed, steps=12 + seed % 20, buffers=6 + seed % 9)
        for tries in (25, 80):
            mapping = random_mapping(program, SMALL, seed + tries, tries=tries)
            if mapping.residencies:
                cases.append((program, mapping))
    return cases


def rows_of(mapping):
    return {name: getattr(mapping, name).copy() for name in COLUMNS}


def rebuilt(program, mapping, row, **changes):
    """Change one residency and derive everything else again, so that only the change itself can be wrong."""
    columns = rows_of(mapping)
    for name, value in changes.items():
        columns[name][row] = value
    return Mapping.from_residencies(program, **columns)


def added(program, mapping, **row):
    columns = {name: np.append(column, row[name]) for name, column in rows_of(mapping).items()}
    return Mapping.from_residencies(program, **columns)


class Row:
    """One residency of a mapping with what is needed to decide whether a corruption applies."""

    def __init__(self, program, mapping, number):
        self.number = number
        for name in COLUMNS:
            setattr(self, name, int(getattr(mapping, name)[number]))
        self.size = int(program.buffer_size[self.buffer])
        self.born = int(program.buffer_start[self.buffer])
        self.dead = int(program.buffer_end[self.buffer])
        self.input = bool(program.buffer_input[self.buffer])
        self.output = bool(program.buffer_output[self.buffer])
        mine = program.access_buffer == self.buffer
        self.accesses = program.access_step[mine].tolist()
        self.reads = program.access_step[mine & ~program.access_write].tolist()
        self.writes = program.access_step[mine & program.access_write].tolist()
        self.served = [step for step in self.accesses if self.ready <= step < self.end]
        region = program.step_region
        self.inside = not self.input and not self.output and 0 <= region[self.born] == region[self.dead - 1]
        self.boundaries = np.flatnonzero(program.boundaries()).tolist()
        self.interior = np.flatnonzero(~program.boundaries()).tolist()


CORRUPTIONS = {}


def corruption(make):
    """Register a kind. `make` returns the corrupted mapping, or None where the change would not be wrong."""
    CORRUPTIONS[make.__name__] = make
    return make


@corruption
def an_offset_is_shifted_into_a_neighbour(program, mapping, row):
    for other in range(mapping.residencies):
        together = mapping.start[other] < row.end and row.start < mapping.end[other]
        fits = mapping.offset[other] + row.size <= SMALL.capacity_bytes
        if other != row.number and together and fits and mapping.buffer[other] != row.buffer:
            return rebuilt(program, mapping, row.number, offset=mapping.offset[other])
    return None


@corruption
def an_offset_is_shifted_to_touch_the_last_byte_of_a_neighbour(program, mapping, row):
    for other in range(mapping.residencies):
        together = mapping.start[other] < row.end and row.start < mapping.end[other]
        last = int(mapping.offset[other]) + int(program.buffer_size[mapping.buffer[other]]) - 1
        offset = last // 8 * 8
        if other != row.number and together and offset + row.size <= SMALL.capacity_bytes:
            return rebuilt(program, mapping, row.number, offset=offset)
    return None


@corruption
def an_offset_is_misaligned(program, mapping, row):
    return rebuilt(program, mapping, row.number, offset=row.offset + 4)


@corruption
def an_offset_is_negative(program, mapping, row):
    return rebuilt(program, mapping, row.number, offset=-8)


@corruption
def a_residency_ends_over_capacity(program, mapping, row):
    return rebuilt(program, mapping, row.number, offset=(SMALL.capacity_bytes - row.size) // 8 * 8 + 8)


@corruption
def an_offset_is_huge(program, mapping, row):
    return rebuilt(program, mapping, row.number, offset=2**63 - 8)


@corruption
def a_production_starts_early(program, mapping, row):
    if row.prefetched or row.start == 0:
        return None
    return rebuilt(program, mapping, row.number, start=row.start - 1, ready=row.start - 1)


@corruption
def a_production_starts_late(program, mapping, row):
    if row.prefetched or row.start + 1 >= row.end:
        return None
    return rebuilt(program, mapping, row.number, start=row.start + 1, ready=row.start + 1)


@corruption
def a_production_is_ready_late(program, mapping, row):
    if row.prefetched or row.start + 1 >= row.end:
        return None
    return rebuilt(program, mapping, row.number, ready=row.start + 1)


@corruption
def a_copy_is_ready_only_after_the_first_access(program, mapping, row):
    if not row.prefetched or not row.served or min(row.served) + 1 >= row.end:
        return None
    return dataclasses.replace(mapping, ready=replaced(mapping.ready, row.number, min(row.served) + 1))


@corruption
def a_copy_is_ready_before_it_starts(program, mapping, row):
    if not row.prefetched or row.start == 0:
        return None
    return rebuilt(program, mapping, row.number, ready=row.start - 1)


@corruption
def a_residency_ends_when_it_is_ready(program, mapping, row):
    return rebuilt(program, mapping, row.number, end=row.ready)


@corruption
def a_residency_ends_before_it_is_ready(program, mapping, row):
    return rebuilt(program, mapping, row.number, end=row.ready - 1) if row.ready else None


@corruption
def a_residency_ends_after_the_program(program, mapping, row):
    return rebuilt(program, mapping, row.number, end=program.steps + 1)


@corruption
def a_step_is_negative(program, mapping, row):
    return rebuilt(program, mapping, row.number, start=-1)


@corruption
def a_window_goes_past_the_last_use(program, mapping, row):
    later = [step for step in row.boundaries if step > row.dead]
    if row.evict >= 0 or not later:
        return None
    return rebuilt(program, mapping, row.number, end=later[0])


@corruption
def a_prefetch_starts_inside_a_region(program, mapping, row):
    inside = [step for step in row.interior if row.born < step <= row.ready]
    if not row.prefetched or not inside:
        return None
    return rebuilt(program, mapping, row.number, start=inside[-1])


@corruption
def a_prefetch_is_awaited_inside_a_region(program, mapping, row):
    inside = [step for step in row.interior if row.start < step < row.end]
    if not row.prefetched or not inside:
        return None
    return rebuilt(program, mapping, row.number, ready=inside[0])


@corruption
def a_residency_ends_inside_a_region(program, mapping, row):
    inside = [step for step in row.interior if max(row.ready, row.evict) < step <= row.dead]
    if row.inside or not inside:
        return None
    return rebuilt(program, mapping, row.number, end=inside[-1])


@corruption
def an_eviction_is_issued_inside_a_region(program, mapping, row):
    inside = [step for step in row.interior if row.ready < step <= min(row.end, row.dead)]
    if row.evict < 0 or not inside:
        return None
    return rebuilt(program, mapping, row.number, evict=inside[-1])


@corruption
def a_buffer_stays_for_a_part_of_the_loop_that_it_lives_in(program, mapping, row):
    if not row.inside or row.end - 1 <= row.start:
        return None
    return rebuilt(program, mapping, row.number, end=row.end - 1)


@corruption
def a_buffer_is_prefetched_inside_the_loop_that_it_lives_in(program, mapping, row):
    return rebuilt(program, mapping, row.number, prefetched=True) if row.inside else None


@corruption
def a_buffer_is_evicted_inside_the_loop_that_it_lives_in(program, mapping, row):
    return rebuilt(program, mapping, row.number, evict=row.end) if row.inside else None


@corruption
def a_production_is_called_a_prefetch(program, mapping, row):
    return None if row.prefetched else rebuilt(program, mapping, row.number, prefetched=True)


@corruption
def a_prefetch_is_called_a_production(program, mapping, row):
    return rebuilt(program, mapping, row.number, prefetched=False) if row.prefetched else None


@corruption
def a_prefetch_is_issued_before_slow_memory_has_the_bytes(program, mapping, row):
    if not row.prefetched or row.input:
        return None
    return rebuilt(program, mapping, row.number, start=row.born)


@corruption
def a_buffer_is_written_while_it_is_being_prefetched(program, mapping, row):
    earlier = [step for step in row.writes if step < row.start]
    if not row.prefetched or not earlier:
        return None
    start = max(step for step in row.boundaries if step <= earlier[-1])
    return rebuilt(program, mapping, row.number, start=start)


@corruption
def a_prefetch_is_awaited_after_the_next_write(program, mapping, row):
    during = [step for step in row.writes if row.ready <= step and step + 1 < row.end]
    later = [step for step in row.boundaries if during and during[0] < step < row.end]
    if not row.prefetched or not later:
        return None
    return rebuilt(program, mapping, row.number, ready=later[0])


@corruption
def an_output_is_not_evicted(program, mapping, row):
    if row.evict < 0 or not row.output or any(step >= row.end for step in row.writes):
        return None
    return rebuilt(program, mapping, row.number, evict=-1, end=min(row.end, row.dead))


@corruption
def a_written_buffer_is_read_from_slow_memory_without_eviction(program, mapping, row):
    later = [step for step in row.accesses if step >= row.end]
    if row.evict < 0 or not later or min(later) not in row.reads or row.end > row.dead:
        return None
    return rebuilt(program, mapping, row.number, evict=-1)


@corruption
def an_eviction_is_issued_before_the_last_write(program, mapping, row):
    if row.evict < 0:
        return None
    last = max(step for step in [row.born, *row.writes] if row.ready <= step < row.evict)
    return rebuilt(program, mapping, row.number, evict=last)


@corruption
def a_write_comes_after_a_new_eviction(program, mapping, row):
    writes = [step for step in row.writes if row.ready < step < row.end]
    points = [step for step in row.boundaries if writes and row.ready < step <= writes[-1]]
    if row.evict >= 0 or not points:
        return None
    return rebuilt(program, mapping, row.number, evict=points[0])


@corruption
def an_eviction_is_issued_after_its_end(program, mapping, row):
    later = [step for step in row.boundaries if step > row.end]
    if row.evict < 0 or not later:
        return None
    return rebuilt(program, mapping, row.number, evict=later[0])


@corruption
def a_buffer_is_evicted_after_its_last_use(program, mapping, row):
    later = [step for step in row.boundaries if step > max(row.dead, row.end)]
    if row.evict < 0 or not later:
        return None
    return rebuilt(program, mapping, row.number, evict=later[0], end=later[0])


@corruption
def an_eviction_is_issued_when_the_residency_is_ready(program, mapping, row):
    return rebuilt(program, mapping, row.number, evict=row.ready) if row.evict >= 0 else None


@corruption
def unchanged_bytes_are_evicted(program, mapping, row):
    points = [step for step in row.boundaries if row.ready < step <= row.end]
    if not row.prefetched or any(row.ready <= step < row.end for step in row.writes) or not points:
        return None
    return rebuilt(program, mapping, row.number, evict=points[0])


@corruption
def an_access_is_at_another_offset_than_its_alias(program, mapping, row):
    return shifted_access(program, mapping, row, lambda offset: offset + 8)


@corruption
def a_fast_access_is_marked_slow(program, mapping, row):
    return shifted_access(program, mapping, row, lambda offset: -1)


@corruption
def a_slow_access_is_marked_fast(program, mapping, row):
    slow = np.flatnonzero((mapping.access_offset < 0) & (program.access_buffer == row.buffer))
    if not len(slow):
        return None
    return dataclasses.replace(mapping, access_offset=replaced(mapping.access_offset, slow[0], row.offset))


@corruption
def an_access_offset_below_minus_one_means_nothing(program, mapping, row):
    return shifted_access(program, mapping, row, lambda offset: -2)


def shifted_access(program, mapping, row, change):
    fast = np.flatnonzero(
        (program.access_buffer == row.buffer) & (program.access_step >= row.ready) & (program.access_step < row.end)
    )
    if not len(fast):
        return None
    offset = change(int(mapping.access_offset[fast[-1]]))
    return dataclasses.replace(mapping, access_offset=replaced(mapping.access_offset, fast[-1], offset))


def replaced(column, place, value):
    column = column.copy()
    column[place] = value
    return column


@corruption
def a_buffer_does_not_exist(program, mapping, row):
    return rebuilt(program, mapping, row.number, buffer=program.buffers)


@corruption
def a_buffer_index_is_negative(program, mapping, row):
    return dataclasses.replace(mapping, buffer=replaced(mapping.buffer, row.number, -1))


@corruption
def a_residency_is_given_to_another_buffer(program, mapping, row):
    if not row.served or program.buffers < 2:
        return None
    return dataclasses.replace(mapping, buffer=replaced(mapping.buffer, row.number, (row.buffer + 1) % program.buffers))


@corruption
def a_residency_is_there_twice(program, mapping, row):
    return added(program, mapping, **{name: getattr(row, name) for name in COLUMNS})


@corruption
def a_buffer_is_in_two_places_at_once(program, mapping, row):
    offset = row.offset - 1024 if row.offset >= 1024 else row.offset + 1024
    if offset + row.size > SMALL.capacity_bytes:
        return None
    return added(program, mapping, **{name: getattr(row, name) for name in COLUMNS} | {"offset": offset})


@corruption
def rows_are_not_sorted(program, mapping, row):
    keys = list(zip(mapping.start.tolist(), mapping.buffer.tolist(), strict=True))
    if row.number == 0 or keys[row.number] == keys[0]:
        return None
    order = np.arange(mapping.residencies)
    order[[0, row.number]] = row.number, 0
    columns = {name: getattr(mapping, name)[order] for name in COLUMNS}
    return dataclasses.replace(mapping, **columns)


@corruption
def one_column_is_shorter(program, mapping, row):
    name = list(COLUMNS)[mapping.residencies % len(COLUMNS)]
    return dataclasses.replace(mapping, **{name: getattr(mapping, name)[:-1]})


@corruption
def all_columns_lack_a_row(program, mapping, row):
    if not row.served:
        return None
    columns = {name: np.delete(column, row.number) for name, column in rows_of(mapping).items()}
    return dataclasses.replace(mapping, **columns)


@corruption
def the_accesses_are_truncated(program, mapping, row):
    return dataclasses.replace(mapping, access_offset=mapping.access_offset[:-1]) if program.accesses else None


@corruption
def a_column_has_another_type(program, mapping, row):
    name = [*COLUMNS, "access_offset"][mapping.residencies % 8]
    column = getattr(mapping, name)
    other = np.int64 if column.dtype != np.int64 else np.int32
    return dataclasses.replace(mapping, **{name: column.astype(other)})


@corruption
def a_column_holds_floats(program, mapping, row):
    return dataclasses.replace(mapping, offset=mapping.offset.astype(float))


@corruption
def a_column_is_a_list(program, mapping, row):
    return dataclasses.replace(mapping, start=mapping.start.tolist())


@corruption
def a_column_has_two_dimensions(program, mapping, row):
    return dataclasses.replace(mapping, end=mapping.end[:, None])


@corruption
def an_empty_buffer_is_resident(program, mapping, row):
    return whole_life(program, mapping, program.buffer_size == 0)


@corruption
def a_buffer_above_the_capacity_is_resident(program, mapping, row):
    return whole_life(program, mapping, program.buffer_size > SMALL.capacity_bytes)


def whole_life(program, mapping, wanted):
    for buffer in np.flatnonzero(wanted & ~program.buffer_input & ~program.buffer_output).tolist():
        start, end = int(program.buffer_start[buffer]), int(program.buffer_end[buffer])
        window = {"start": start, "ready": start, "end": end}
        return added(program, mapping, buffer=buffer, offset=0, prefetched=False, evict=-1, **window)
    return None


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_it_refuses_a_mapping_in_which(kind):
    refused = 0
    for program, mapping in legal_cases():
        for number in range(mapping.residencies):
            corrupted = CORRUPTIONS[kind](program, mapping, Row(program, mapping, number))
            if corrupted is None:
                continue
            problems = validate(program, SMALL, corrupted)
            assert problems, f"{program.name}, residency {number}"
            assert all(isinstance(problem, str) and problem for problem in problems)
            refused += 1
            break
        if refused == 60:
            break
    assert refused >= 20


def test_there_are_at_least_twenty_kinds():
    assert len(CORRUPTIONS) >= 20


def test_it_accepts_every_legal_mapping():
    assert len(legal_cases()) > 200
    for program, mapping in legal_cases():
        assert validate(program, SMALL, mapping) == []
        check(program, SMALL, mapping)


def test_the_random_mappings_have_everything_that_a_mapping_can_have():
    rows = [
        (program, Row(program, mapping, number))
        for program, mapping in legal_cases()
        for number in range(mapping.residencies)
    ]
    assert sum(bool(row.prefetched) for _, row in rows) > 200
    assert sum(not row.prefetched for _, row in rows) > 200
    assert sum(row.evict >= 0 for _, row in rows) > 200
    assert sum(row.inside for _, row in rows) > 50
    assert sum(row.start < row.ready for _, row in rows) > 100
    assert sum(bool(row.prefetched) and not row.input for _, row in rows) > 50
    assert sum(mapping.residencies > len(set(mapping.buffer.tolist())) for _, mapping in legal_cases()) > 40


@given(seed=SEEDS, kept=st.integers(0, 2**20))
def test_a_legal_mapping_stays_legal_when_residencies_are_left_out(seed, kept):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    chosen = np.array([kept >> (number % 20) & 1 for number in range(mapping.residencies)], bool)
    fewer = Mapping.from_residencies(program, **{name: column[chosen] for name, column in rows_of(mapping).items()})
    assert validate(program, SMALL, fewer) == []


@given(seed=SEEDS)
def test_everything_in_slow_memory_is_legal(seed):
    program = random_program(seed)
    mapping = Mapping.all_slow(program)
    assert mapping.residencies == 0
    assert (mapping.access_offset == -1).all()
    assert validate(program, SMALL, mapping) == []


@given(seed=SEEDS)
def test_residencies_are_sorted_and_accesses_follow_from_them(seed):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    order = np.random.default_rng(seed).permutation(mapping.residencies)
    again = Mapping.from_residencies(program, **{name: column[order] for name, column in rows_of(mapping).items()})
    for name in COLUMNS:
        assert (getattr(again, name) == getattr(mapping, name)).all()
    for access in range(program.accesses):
        buffer, step = program.access_buffer[access], program.access_step[access]
        found = [
            int(mapping.offset[row])
            for row in range(mapping.residencies)
            if mapping.buffer[row] == buffer and mapping.ready[row] <= step < mapping.end[row]
        ]
        assert again.access_offset[access] == (found[0] if found else -1)


def test_a_problem_names_the_residency_the_buffer_and_the_step():
    program = program_of(steps=[{"reads": ["weights"]}] * 3, sizes={"weights": 100}, inputs=("weights",))
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [2], "end": [2], "prefetched": [True], "evict": [-1]}
    problems = validate(program, SMALL, Mapping.from_residencies(program, **row))
    assert problems == ["residency 0 of buffer 0 (weights): ends at step 2, not after it is ready at step 2"]


def test_a_partial_write_does_not_make_stale_bytes_current():
    steps = [{"writes": ["x"]}, {"flops": 1}, {"writes": [("x", 50)]}, {"reads": ["x"]}]
    program = program_of(steps=steps, sizes={"x": 100})
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [2], "prefetched": [False]}
    stale = Mapping.from_residencies(program, **row, evict=[-1])
    assert "step 3 reads slow memory" in validate(program, SMALL, stale)[0]
    assert validate(program, SMALL, Mapping.from_residencies(program, **row, evict=[1])) == []
    whole = program_of(steps=[*steps[:2], {"writes": ["x"]}, steps[3]], sizes={"x": 100})
    assert validate(whole, SMALL, Mapping.from_residencies(whole, **row, evict=[-1])) == []


@pytest.mark.parametrize("order", [[0, 1, 2], [0, 2, 1]])
def test_a_step_reads_before_it_writes_in_whatever_order_its_accesses_are_listed(order):
    program = program_of(steps=[{"writes": ["x"]}, {"reads": ["x"], "writes": ["x"]}], sizes={"x": 100})
    names = [name for name in dir(program) if name.startswith("access_")]
    program = dataclasses.replace(program, **{name: getattr(program, name)[order] for name in names})
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    problems = validate(program, SMALL, Mapping.from_residencies(program, **row))
    assert problems == [
        "residency 0 of buffer 0 (x): step 1 reads slow memory, which has no current copy after this residency"
    ]


def test_a_buffer_that_is_read_before_it_is_written_is_defined_by_that_read():
    program = program_of(steps=[{"reads": ["x"]}, {"reads": ["x"]}], sizes={"x": 100}, outputs=("x",))
    assert validate(program, SMALL, Mapping.all_slow(program)) == []
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [2], "prefetched": [False]}
    assert validate(program, SMALL, Mapping.from_residencies(program, **row, evict=[1])) == []
    kept = validate(program, SMALL, Mapping.from_residencies(program, **row, evict=[-1]))
    assert "an output, but slow memory has no current copy" in kept[0]


def test_a_prefetch_may_be_in_flight_across_a_loop():
    steps = [{"flops": 1}, {"reads": ["a"], "region": 0}, {"flops": 1, "region": 0}, {"reads": ["a"]}]
    program = program_of(steps=steps, sizes={"a": 100}, inputs=("a",))
    row = {"buffer": [0], "offset": [0], "start": [0], "end": [4], "prefetched": [True], "evict": [-1]}
    assert validate(program, SMALL, Mapping.from_residencies(program, **row, ready=[3])) == []
    assert validate(program, SMALL, Mapping.from_residencies(program, **row, ready=[1])) == []
    assert "inside loop or branch 0" in validate(program, SMALL, Mapping.from_residencies(program, **row, ready=[2]))[0]


def test_space_is_free_again_at_the_step_where_a_residency_ends():
    program = program_of(steps=[{"reads": ["a"]}, {"reads": ["b"]}], sizes={"a": 100, "b": 100}, inputs=("a", "b"))
    rows = {"buffer": [0, 1], "offset": [0, 0], "start": [0, 1], "ready": [0, 1], "end": [1, 2]}
    mapping = Mapping.from_residencies(program, **rows, prefetched=[True, True], evict=[-1, -1])
    assert validate(program, SMALL, mapping) == []


def test_it_stops_after_fifty_problems():
    sizes = {f"b{number}": 100 for number in range(40)}
    program = program_of(steps=[{"reads": list(sizes)}], sizes=sizes, inputs=tuple(sizes))
    count = len(sizes)
    rows = {"buffer": range(count), "offset": [0] * count, "start": [0] * count, "ready": [0] * count}
    crowded = Mapping.from_residencies(program, **rows, end=[1] * count, prefetched=[True] * count, evict=[-1] * count)
    problems = validate(program, SMALL, crowded)
    assert len(problems) == MOST_PROBLEMS == len(set(problems))


def test_check_raises_the_first_problems():
    program = program_of(steps=[{"reads": ["a"]}], sizes={"a": 100}, inputs=("a",))
    row = {"buffer": [0], "offset": [4], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    with pytest.raises(InputError, match="not a multiple of 8; .* an input is not produced") as caught:
        check(program, SMALL, Mapping.from_residencies(program, **row))
    assert caught.value.code == "mapping-illegal"


def test_boundaries_are_outside_regions_and_at_their_first_steps():
    steps = [{"region": region} for region in (-1, 0, 0, 0, 1, 1, -1, 2, -1)]
    program = program_of(steps=steps, sizes={})
    assert np.flatnonzero(~program.boundaries()).tolist() == [2, 3, 5]
    assert len(program.boundaries()) == program.steps + 1


@pytest.mark.parametrize("regions", [[], [-1], [0], [0, 0], [0, 1]])
def test_the_beginning_and_the_end_of_a_program_are_boundaries(regions):
    boundaries = program_of(steps=[{"region": region} for region in regions], sizes={}).boundaries()
    assert len(boundaries) == len(regions) + 1
    assert boundaries[0] and boundaries[-1]


@given(seed=SEEDS, count=st.integers(1, 6))
def test_it_agrees_with_a_walk_through_the_program_about_any_windows(seed, count):
    program = random_program(seed, steps=10, buffers=3)
    rng = np.random.default_rng([seed, 3])
    drawn = [
        proposal(program, SMALL, rng, program.boundaries(), int(rng.integers(program.buffers)), 10**6)
        for _ in range(count)
    ]
    rows = [row for row in drawn if row is not None]
    apart = not any(clash(program, one, other) for number, one in enumerate(rows) for other in rows[:number])
    legal = apart and all(
        sound(
            program, buffer, np.flatnonzero(program.access_buffer == buffer), [row for row in rows if row[0] == buffer]
        )
        for buffer in range(program.buffers)
    )
    columns = zip(*rows, strict=True) if rows else ((),) * len(COLUMNS)
    mapping = Mapping.from_residencies(program, **dict(zip(COLUMNS, columns, strict=True)))
    assert (validate(program, SMALL, mapping) == []) == legal


WILD = st.one_of(st.integers(-3, 30), st.sampled_from([-(2**31), 2**31 - 1]))


@given(seed=st.integers(0, 50), rows=st.lists(st.tuples(WILD, WILD, WILD, WILD, WILD, st.booleans(), WILD), max_size=6))
def test_no_columns_make_it_fail_instead_of_answer(seed, rows):
    program = random_program(seed, steps=seed % 12, buffers=seed % 5) if seed % 12 else program_of(steps=[], sizes={})
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(COLUMNS)
    made = Mapping.from_residencies(program, **dict(zip(COLUMNS, columns, strict=True)))
    far = dataclasses.replace(made, offset=made.offset * 2**40)
    for mapping in (made, far):
        problems = validate(program, SMALL, mapping)
        assert len(problems) <= MOST_PROBLEMS
        assert problems or not rows or all(0 <= row[0] < program.buffers for row in rows)
