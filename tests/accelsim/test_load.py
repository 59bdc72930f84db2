import dataclasses
import json

import numpy as np
import pytest

from accelsim.errors import InputError
from accelsim.load import load, peak_bytes, summarise
from accelsim.program import Program
from accelsim.xla import Compiler
from tests.accelsim.modules import FILES, LOOP, MAML, entry

SCHEDULED_LOOP = LOOP.replace("HloModule loop", "HloModule loop, is_scheduled=true").encode()


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:2])
def test_every_file_loads_and_has_a_summary(path, compiler):
    loaded = load(path.read_bytes(), compiler=compiler)
    summary = json.loads(json.dumps(summarise(loaded)))
    assert summary["schedule_source"] == "xla-cpu"
    assert summary["steps"] == loaded.program.steps > 30
    assert 0 < summary["peak_bytes"] <= summary["buffer_bytes"]
    assert summary["flops"] > 0
    assert summary["notes"] == list(dict.fromkeys(summary["notes"]))


def test_the_summary_counts_every_iteration(compiler):
    summary = summarise(load(SCHEDULED_LOOP, compiler=compiler))
    # The body adds once and four times, ten times; the condition compares once more than that.
    assert summary["flops"] == 10 * 5 + 11
    assert summary["schedule_source"] == "input"


def test_the_summary_counts_alias_groups(compiler):
    """The loop carries two values, each in one buffer; its condition and body make three buffers of their own, and what
    it starts from is copied, since a loop may not overwrite a parameter or a constant."""
    summary = summarise(load(SCHEDULED_LOOP, compiler=compiler))
    assert (summary["buffers"], summary["alias_groups"], summary["values"]) == (7, 2, 13)


def test_loading_twice_gives_the_same_program(compiler):
    first, second = (load(MAML.read_bytes(), compiler=compiler).program for _ in range(2))
    for field in dataclasses.fields(Program):
        assert np.array_equal(getattr(first, field.name), getattr(second, field.name)), field.name


def test_operations_that_overflow_64_bits_are_refused(compiler):
    size = "s8[2000000000,1000000000]"
    data = entry(
        f"p = {size} parameter(0)",
        "ROOT r = s8[2000000000,2000000000] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    )
    with pytest.raises(InputError) as caught:
        load(data, compiler=compiler)
    assert caught.value.code == "size-overflow"


def test_the_peak_is_the_most_that_is_live_at_once(compiler):
    data = entry(
        "p = f32[100] parameter(0)",
        "a = f32[100] negate(p)",
        "b = f32[10] slice(a), slice={[0:10]}",
        "ROOT c = f32[10] negate(b)",
        header="HloModule m, is_scheduled=true",
    )
    assert peak_bytes(load(data, compiler=compiler).program) == 400 + 400
