import dataclasses
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accelsim.cost import Costs
from accelsim.errors import InputError
from tests.accelsim.programs import SMALL, program_of


def one_step(*, flops=0, size=0, repeat=1):
    step = {"flops": flops, "reads": ["a"], "writes": ["b"], "repeat": repeat}
    return program_of(steps=[step], sizes={"a": size, "b": size}, inputs=("a",))


def test_each_duration_follows_from_its_rate():
    costs = Costs.of(one_step(flops=123, size=100, repeat=3), SMALL)
    assert costs.compute_ps.tolist() == [123]
    assert costs.slow_ps.tolist() == [1000, 1000]
    assert costs.fast_ps.tolist() == [100, 200]  # a read, a write
    assert costs.copy_ps.tolist() == [1007, 1007]
    assert costs.repeat.tolist() == [3]
    assert all(column.dtype == np.int64 for column in dataclasses.astuple(costs))


@given(
    amount=st.integers(0, 2**40),
    flops_rate=st.integers(10**6, 10**16),
    slow_rate=st.integers(10**6, 10**13),
    faster=st.integers(0, 10**13),
)
def test_durations_are_rounded_up_exactly(amount, flops_rate, slow_rate, faster):
    rates = {
        "flops_per_second": flops_rate,
        "slow_bytes_per_second": slow_rate,
        "fast_read_bytes_per_second": slow_rate + faster,
    }
    costs = Costs.of(one_step(flops=amount, size=amount), dataclasses.replace(SMALL, **rates))
    assert costs.compute_ps[0] == ceil(Fraction(amount * 10**12, flops_rate))
    assert costs.slow_ps[0] == ceil(Fraction(amount * 10**12, slow_rate))
    assert costs.fast_ps[0] == ceil(Fraction(amount * 10**12, slow_rate + faster))
    assert costs.fast_ps[0] <= costs.slow_ps[0]


@pytest.mark.parametrize(
    "program",
    [
        one_step(flops=2**63 - 1, repeat=2),
        one_step(size=2**62),
        one_step(flops=10**10, repeat=10**10),
        one_step(flops=10**18, repeat=10),
        program_of(steps=[{"flops": 2**62}, {"flops": 2**62}], sizes={}),
        program_of(steps=[{}], sizes={"a": 2**62}),  # only its copy is too long
        program_of(steps=[{}], sizes={name: 10**17 for name in "abcd"}),
        program_of(steps=[{"reads": ["a"] * 4}], sizes={"a": 3 * 10**17}, inputs=("a",)),
    ],
    ids=[
        "flops",
        "bytes",
        "repeat",
        "repeat of a long step",
        "sum of steps",
        "copy",
        "sum of copies",
        "sum of accesses",
    ],
)
def test_it_refuses_times_that_do_not_fit_in_64_bits(program):
    with pytest.raises(InputError) as caught:
        Costs.of(program, SMALL)
    assert caught.value.code == "cost-overflow"


def test_it_refuses_a_slow_copy_latency_on_top_of_a_long_copy():
    program = program_of(steps=[{}], sizes={"a": (2**63 - 1) // 10})
    with pytest.raises(InputError):
        Costs.of(program, dataclasses.replace(SMALL, dma_latency_ps=10**15))


def test_the_largest_times_that_fit_are_accepted():
    costs = Costs.of(program_of(steps=[{"flops": 2**63 - 1}], sizes={}), SMALL)
    assert costs.compute_ps.tolist() == [2**63 - 1]


def test_an_empty_program_costs_nothing():
    costs = Costs.of(program_of(steps=[], sizes={}), SMALL)
    assert [len(column) for column in dataclasses.astuple(costs)] == [0] * 5
