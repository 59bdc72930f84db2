import csv
import dataclasses
import io

from hypothesis import given
from hypothesis import strategies as st

from accelsim.mapping import Mapping
from accelsim.writers.csv import HEADER, mapping_csv
from tests.accelsim.programs import SMALL, program_of, random_mapping, random_program


def table(program, mapping):
    return list(csv.DictReader(io.StringIO(mapping_csv(program, mapping), newline="")))


@given(seed=st.integers(0, 10**6))
def test_it_writes_one_line_a_residency(seed):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    lines = table(program, mapping)
    assert [int(line["buffer"]) for line in lines] == mapping.buffer.tolist()
    assert [int(line["offset_bytes"]) for line in lines] == mapping.offset.tolist()
    assert [int(line["size_bytes"]) for line in lines] == program.buffer_size[mapping.buffer].tolist()
    for name in ("start", "ready", "end"):
        assert [int(line[f"{name}_step"]) for line in lines] == getattr(mapping, name).tolist()
    assert [int(line["evict_step"] or -1) for line in lines] == mapping.evict.tolist()
    assert [line["prefetched"] == "yes" for line in lines] == mapping.prefetched.tolist()


def test_nothing_in_fast_memory_is_a_table_without_lines():
    program = random_program(1)
    assert mapping_csv(program, Mapping.all_slow(program)) == ",".join(HEADER) + "\r\n"


@given(name=st.text(min_size=1))
def test_no_name_breaks_the_table_or_becomes_a_formula(name):
    program = program_of(steps=[{"writes": ["t"]}], sizes={"t": 8})
    program = dataclasses.replace(program, buffer_name=(name,))
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    (line,) = table(program, Mapping.from_residencies(program, **row))
    assert line["name"].removeprefix("'") == name.removeprefix("'")
    assert line["name"][0] not in "=+-@\t\r\n"


def test_a_formula_is_turned_into_text():
    program = program_of(steps=[{"writes": ["=cmd|'/c calc'!A0"]}], sizes={"=cmd|'/c calc'!A0": 8})
    row = {"buffer": [0], "offset": [0], "start": [0], "ready": [0], "end": [1], "prefetched": [False], "evict": [-1]}
    assert table(program, Mapping.from_residencies(program, **row))[0]["name"] == "'=cmd|'/c calc'!A0"
