import copy
import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from accelsim.errors import InputError
from accelsim.mapping import COLUMNS, Mapping
from accelsim.simulator import Simulator
from accelsim.writers.json import fingerprint, mapping_document, read_mapping
from tests.accelsim.programs import SMALL, program_of, random_mapping, random_program

SCHEMA = json.loads(Path("docs/mapping.schema.json").read_text())
SEEDS = st.integers(0, 10**6)
RECIPE = {"method": "annealing", "seed": 3}


def made(seed):
    program = random_program(seed)
    mapping = random_mapping(program, SMALL, seed)
    return program, mapping, mapping_document(program, SMALL, mapping, recipe=RECIPE)


def same(one, other):
    return all((getattr(one, name) == getattr(other, name)).all() for name in [*COLUMNS, "access_offset"])


def conforms(value, schema, where="document"):
    """Check the part of JSON Schema that our schema uses."""
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    if "const" in schema:
        assert value == schema["const"], where
    if "type" in schema:
        allowed = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        assert type(value) in [types[name] for name in allowed], where
    if "minimum" in schema and value is not None:
        assert value >= schema["minimum"], where
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        assert set(schema.get("required", ())) <= set(value), where
        for key, item in value.items():
            rest = schema.get("additionalProperties", {})
            assert key in properties or rest is not False, f"{where}.{key}"
            conforms(item, properties.get(key, rest or {}), f"{where}.{key}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            conforms(item, schema.get("items", {}), f"{where}[{index}]")


@given(seed=SEEDS)
def test_a_document_gives_the_same_mapping_back(seed):
    program, mapping, document = made(seed)
    assert same(read_mapping(json.loads(json.dumps(document)), program), mapping)


@given(seed=SEEDS)
def test_a_document_conforms_to_the_published_schema(seed):
    conforms(made(seed)[2], SCHEMA)


def test_a_document_says_what_it_is_about():
    program, mapping, document = made(4)
    assert document["recipe"] == RECIPE
    assert document["latency_ps"] == Simulator(program, SMALL).latency(mapping)
    assert document["device"]["capacity_bytes"] == SMALL.capacity_bytes
    assert len(document["residencies"]) == mapping.residencies > 0


def test_every_value_has_its_place():
    steps = [{"writes": ["t"]}, {"reads": ["t", "a"], "writes": ["x"]}, {"reads": ["a"]}]
    program = program_of(steps=steps, sizes={"a": 8, "t": 8, "x": 8}, inputs=("a",), outputs=("x",))
    rows = {"buffer": [1, 0], "offset": [64, 8], "start": [0, 0], "ready": [0, 1], "end": [2, 3]}
    mapping = Mapping.from_residencies(program, **rows, prefetched=[False, True], evict=[-1, -1])
    assert mapping_document(program, SMALL, mapping, recipe={})["values"] == [
        {"name": "a", "buffer": 0, "offset": None, "residencies": [0]},
        {"name": "t", "buffer": 1, "offset": 64, "residencies": [1]},
        {"name": "x", "buffer": 2, "offset": None, "residencies": []},
    ]


def test_it_refuses_a_mapping_of_another_program():
    program, _, document = made(4)
    for other in (random_program(5), dataclasses.replace(program, buffer_size=program.buffer_size + 8)):
        with pytest.raises(InputError) as caught:
            read_mapping(document, other)
        assert caught.value.code == "mapping-program"


def test_the_fingerprint_depends_on_what_a_mapping_depends_on():
    program = random_program(4)
    assert fingerprint(program) == fingerprint(random_program(4))
    assert fingerprint(program) == fingerprint(dataclasses.replace(program, notes=("other",)))
    renamed = dataclasses.replace(program, buffer_name=("other", *program.buffer_name[1:]))
    assert fingerprint(program) != fingerprint(renamed)


def paths(value, prefix=()):
    yield prefix
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*prefix, key))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 2**31, 2**63, 2**64, 10**400]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(data=st.data(), seed=st.integers(0, 30))
def test_a_damaged_document_is_refused_or_means_the_same(data, seed):
    program, mapping, document = made(seed)
    path = data.draw(st.sampled_from(list(paths(document))))
    assume(path)
    damaged = copy.deepcopy(document)
    target = damaged
    for key in path[:-1]:
        target = target[key]
    original = target[path[-1]]
    if data.draw(st.booleans()):
        value = data.draw(JUNK)
        assume(type(value) is not type(original) or value != original)
        target[path[-1]] = value
    else:
        del target[path[-1]]
    free = path[0] in ("recipe", "latency_ps") or path[0] == "device"
    try:
        assert same(read_mapping(damaged, program), mapping)
        assert free, path
    except InputError as error:
        assert error.code in ("mapping-format", "mapping-program")
        assert len(error.message) < 400


@given(document=JUNK)
def test_it_refuses_what_is_not_a_document(document):
    with pytest.raises(InputError):
        read_mapping(document, random_program(1))


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("version",), 2, "version"),
        (("version",), True, "version"),
        (("kind",), "hlo", "kind"),
        (("extra",), 1, "extra"),
        (("device", "capacity_bytes"), "big", "device.capacity_bytes"),
        (("device", "sources", "colour"), "x", "colour"),
        (("residencies", 0, "offset"), -8, "residencies[0].offset"),
        (("residencies", 0, "offset"), 8.0, "residencies[0].offset"),
        (("residencies", 0, "start"), True, "residencies[0].start"),
        (("residencies", 0, "end"), 10**6, "residencies[0].end"),
        (("residencies", 0, "prefetched"), 1, "residencies[0].prefetched"),
        (("residencies", 0, "evict"), -1, "residencies[0].evict"),
        (("residencies", 0, "name"), "?", "residencies[0].name"),
        (("residencies", 0, "size"), 1.5, "residencies[0].size"),
        (("residencies", 0, "buffer"), 99, "residencies[0].buffer"),
        (("residencies", 0, "colour"), 99, "residencies[0] has an unknown key"),
        (("values", 0, "offset"), 12345, "values[0]"),
    ],
)
def test_it_names_the_field_that_is_wrong(place, value, named):
    program, _, document = made(4)
    target = document
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    with pytest.raises(InputError) as caught:
        read_mapping(document, program)
    assert named in caught.value.message
