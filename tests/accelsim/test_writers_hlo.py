import dataclasses

import numpy as np
import pytest

from accelsim.errors import InputError
from accelsim.load import load
from accelsim.mapping import Mapping, validate
from accelsim.program import Program
from accelsim.readers.mapping import read_mapping, strip
from accelsim.readers.program import build_program
from accelsim.writers.hlo import annotate
from accelsim.xla import Compiler
from accelsim.xla.schema import TUPLE, decode_module
from accelsim.xla.shape import leaves
from tests.accelsim.modules import EFFICIENTNET, FILES
from tests.accelsim.programs import SMALL, random_mapping
from tests.accelsim.scheduled import ASYNC, CALLS, LOOP_IN_PLACE, MODULES, SEND, proto_of

DEVICE = dataclasses.replace(SMALL, capacity_bytes=16_384)
NAMES = {"step_name", "step_computation", "buffer_name", "value_name"}


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


def through_xla(proto: bytes, *, compiler: Compiler) -> tuple[bytes, str]:
    """The module as XLA reads it from its own text of it, and that text."""
    _, (_, text) = compiler.call("parse_proto", proto)
    _, (again, _) = compiler.call("parse_text", text)
    return again, text.decode()


def assert_same(left, right, *, but=()):
    for field in dataclasses.fields(left):
        if field.name not in but:
            assert np.array_equal(getattr(left, field.name), getattr(right, field.name)), field.name


def inside(program: Program, *rows: dict[str, object]) -> Mapping:
    """A mapping of rows ``{"buffer": name, "offset", "start", "ready", "end", "prefetched", "evict"}``."""
    table = [{"evict": -1, "prefetched": False, **row} for row in rows]
    for row in table:
        row["buffer"] = program.buffer_name.index(str(row["buffer"]))
        row.setdefault("ready", row["start"])
    names = ("buffer", "offset", "start", "ready", "end", "prefetched", "evict")
    mapping = Mapping.from_residencies(program, **{name: [row[name] for row in table] for name in names})
    assert validate(program, DEVICE, mapping) == []
    return mapping


# Everything comes back


@pytest.mark.parametrize("name", [*MODULES, "async", "send"])
def test_the_mapping_and_the_program_come_back_from_xlas_text(name, compiler):
    proto = proto_of({**MODULES, "async": ASYNC, "send": SEND}[name], compiler=compiler)
    program = build_program(proto)
    for seed in range(40):
        mapping = random_mapping(program, DEVICE, seed, tries=150)
        annotated = annotate(proto, program=program, device=DEVICE, mapping=mapping)
        again, _ = through_xla(annotated, compiler=compiler)
        for module in (annotated, again):
            assert_same(read_mapping(module, program=program), mapping)
            # Calls are inlined: what was called twice has a second name.
            assert_same(build_program(module), program, but=NAMES if name == "calls" else ())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:2])
def test_the_mapping_of_a_real_module_comes_back(path, compiler):
    loaded = load(path.read_bytes(), compiler=compiler)
    program = loaded.program
    device = dataclasses.replace(SMALL, capacity_bytes=int(program.buffer_size.max()) * 2, alignment_bytes=512)
    mapping = random_mapping(program, device, 5, tries=300)
    annotated = annotate(loaded.scheduled.proto, program=program, device=device, mapping=mapping)
    modules = [annotated]
    if path != EFFICIENTNET:  # the text of its constants is long
        modules.append(through_xla(annotated, compiler=compiler)[0])
    assert mapping.residencies > 10
    for module in modules:
        assert_same(read_mapping(module, program=program), mapping)
        assert_same(build_program(module), program)


def test_an_annotated_text_loads_like_any_module(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    mapping = random_mapping(program, DEVICE, 1, tries=150)
    _, text = through_xla(annotate(proto, program=program, device=DEVICE, mapping=mapping), compiler=compiler)
    loaded = load(text.encode(), compiler=compiler)
    assert loaded.scheduled.source == "input"
    assert_same(loaded.program, program)
    assert_same(read_mapping(loaded.source.proto, program=loaded.program), mapping)


def test_stripping_leaves_nothing_behind(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    for seed in range(5):
        mapping = random_mapping(program, DEVICE, seed, tries=150)
        annotated = annotate(proto, program=program, device=DEVICE, mapping=mapping)
        _, plain = through_xla(strip(annotated), compiler=compiler)
        assert plain == through_xla(proto, compiler=compiler)[1]


# Every use is served where the mapping says, and computes what it computed


@pytest.mark.parametrize("name", MODULES)
def test_operands_and_results_lie_where_the_mapping_says(name, compiler):
    proto = proto_of(MODULES[name], compiler=compiler)
    program = build_program(proto)
    for seed in range(40):
        mapping = random_mapping(program, DEVICE, seed, tries=150)
        annotated = decode_module(annotate(proto, program=program, device=DEVICE, mapping=mapping))
        items = {item.id: item for computation in annotated.computations for item in computation.instructions}
        steps = {item.name: item for item in items.values()}
        names = build_program(annotated.SerializeToString()).step_name
        for access, step in enumerate(program.access_step.tolist()):
            item = steps[names[step]]
            value = program.value_name[program.access_value[access]]
            if program.access_write[access]:
                shape = item.shape
                wanted = value.partition("{")[2].rstrip("}")
            else:
                shape = items[item.operand_ids[program.access_operand[access]]].shape
                wanted = ""
            if shape.element_type == TUPLE and not wanted:
                continue
            index = tuple(int(number) for number in wanted.split(",")) if wanted else ()
            leaf = dict(leaves(shape))[index]
            fast = mapping.access_offset[access] >= 0
            assert leaf.layout.memory_space == (DEVICE.memory_space if fast else 0), (seed, item.name, value)


@pytest.mark.parametrize("name", MODULES)
def test_the_annotated_module_computes_the_same(name, compiler):
    proto = proto_of(MODULES[name], compiler=compiler)
    program = build_program(proto)
    terms: dict[object, int] = {}
    expected = meaning(proto, terms)
    for seed in range(40):
        mapping = random_mapping(program, DEVICE, seed, tries=150)
        annotated = annotate(proto, program=program, device=DEVICE, mapping=mapping)
        assert meaning(annotated, terms) == expected, seed


def meaning(proto: bytes, terms: dict[object, int]) -> list[int]:
    """What the entry computation returns, leaf by leaf, as the number of a term over its parameters.

    Copies between memories and everything that forwards are left out of the terms.
    """
    module = decode_module(proto)
    computations = {computation.id: computation for computation in module.computations}

    def term(*parts: object) -> int:
        return terms.setdefault(parts, len(terms))

    def run(computation, parameters):
        places = {}
        for item in computation.instructions:
            operands = [places[identity] for identity in item.operand_ids]
            called = [computations[identity] for identity in item.called_computation_ids]
            flat = [leaf for operand in operands for leaf in operand]
            count = len(leaves(item.shape))
            if item.opcode == "parameter":
                result = parameters[item.parameter_number]
            elif item.opcode == "tuple":
                result = flat
            elif item.opcode == "get-tuple-element":
                source = next(other for other in computation.instructions if other.id == item.operand_ids[0])
                sizes = [len(leaves(shape)) for shape in source.shape.tuple_shapes]
                first = sum(sizes[: item.tuple_index])
                result = operands[0][first : first + sizes[item.tuple_index]]
            elif item.opcode in ("copy", "copy-start", "bitcast"):
                result = operands[0] * count
            elif item.opcode == "copy-done":
                result = operands[0][:1]
            elif item.opcode == "call":
                result = run(called[0], operands)
            elif item.opcode == "while":
                marks = [term("carry", leaf) for leaf in range(count)]
                body, condition = run(called[0], [marks]), run(called[1], [marks])
                loop = term("loop", tuple(body), tuple(condition), tuple(flat))
                result = [flat[n] if body[n] == marks[n] else term(loop, n) for n in range(count)]
            elif item.opcode == "conditional":
                branches = [run(branch, [operand]) for branch, operand in zip(called, operands[1:], strict=True)]
                result = [term("branch", operands[0][0], leaf) for leaf in zip(*branches, strict=True)]
            else:
                plain = type(item)()
                plain.CopyFrom(item)
                for field in ("id", "name", "shape", "operand_ids", "called_computation_ids", "frontend_attributes"):
                    plain.ClearField(field)
                result = [term(plain.SerializeToString(deterministic=True), tuple(flat), n) for n in range(count)]
            places[item.id] = result
        return places[computation.root_id]

    entry = computations[module.entry_computation_id]
    given = {}
    for item in entry.instructions:
        if item.opcode == "parameter":
            given[item.parameter_number] = [
                term("parameter", item.parameter_number, leaf) for leaf in range(len(leaves(item.shape)))
            ]
    return run(entry, given)


@pytest.mark.parametrize("name", ["a{1}", "c{1}", "g{1}", "r.1"])
def test_what_is_under_way_is_copied_from_its_done(name, compiler):
    proto = proto_of(ASYNC, compiler=compiler)
    program = build_program(proto)
    buffer = program.buffer_name.index(name if name in program.buffer_name else "r")
    end = int(program.buffer_end[buffer])
    row = {"buffer": program.buffer_name[buffer], "offset": 0, "start": int(program.buffer_start[buffer]), "end": end}
    uses = program.access_step[(program.access_buffer == buffer) & ~program.access_write]
    mapping = inside(program, row | {"evict": int(uses.min()), "end": int(uses.min()) + 1})
    entry = decode_module(annotate(proto, program=program, device=DEVICE, mapping=mapping)).computations[-1]
    opcode = {item.id: item.opcode for item in entry.instructions}
    for item in entry.instructions:
        if item.opcode not in ("copy-done", "async-update") and not item.opcode.endswith("-done"):
            assert not [n for n in item.operand_ids if opcode[n].endswith("-start")], item.name


# How it is written


def test_a_weight_that_a_loop_carries_is_prefetched_before_it(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    row = {"buffer": "weight", "offset": 512, "start": 1, "ready": 3, "end": 8, "prefetched": True}
    mapping = inside(program, row)
    _, text = through_xla(annotate(proto, program=program, device=DEVICE, mapping=mapping), compiler=compiler)
    lines = [line.strip() for line in text.split("ENTRY")[1].splitlines()]
    order = [line.removeprefix("ROOT ").split(" = ")[0].lstrip("%") for line in lines if " = " in line]
    start, done = "copy-start.graphsmith.0", "copy-done.graphsmith.1"
    assert order.index("start") < order.index(start) < order.index("double")
    assert order.index("empty") < order.index(done) < order.index("loop")
    line = next(line for line in lines if line.startswith(f"%{start}"))
    assert line.startswith(f"%{start} = (f32[256]{{0:S(1)}}, f32[256]{{0}}, u32[]) copy-start(%weight)")
    assert 'graphsmith_residency="buffer=1 offset=512 end=8"' in line
    # Carried through in fast memory, and read from slow memory after the loop.
    loop = next(line for line in lines if line.startswith("%loop = "))
    assert loop.startswith("%loop = (s32[], f32[256]{0}, f32[4,256]{1,0}, f32[256]{0:S(1)}) while(")
    last = next(line for line in lines if line.startswith("%last = "))
    assert last.startswith("%last = f32[256]{0} multiply(%weight, %weight)")


def test_a_result_that_is_evicted_is_returned_from_slow_memory(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    mapping = inside(program, {"buffer": "empty", "offset": 0, "start": 2, "end": 10, "evict": 9})
    _, text = through_xla(annotate(proto, program=program, device=DEVICE, mapping=mapping), compiler=compiler)
    root = next(line for line in text.split("ENTRY")[1].splitlines() if "ROOT" in line)
    assert "tuple(%sum, %copy-done.graphsmith." in root
    assert "(f32[256]{0}, f32[4,256]{1,0})" in root
    update = next(line.strip() for line in text.splitlines() if "%update = " in line)
    assert update.startswith("%update = f32[4,256]{1,0:S(1)} dynamic-update-slice(")


def test_an_empty_mapping_changes_nothing_but_its_mark(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    mapping = Mapping.all_slow(program)
    annotated = annotate(proto, program=program, device=DEVICE, mapping=mapping)
    _, text = through_xla(annotated, compiler=compiler)
    marks = ', frontend_attributes={graphsmith_mapping="1"}'
    assert text.replace(marks, "") == through_xla(proto, compiler=compiler)[1]


def test_calls_are_inlined_and_shared_bodies_cloned(compiler):
    proto = proto_of(CALLS, compiler=compiler)
    program = build_program(proto)
    mapping = random_mapping(program, DEVICE, 2, tries=150)
    annotated = decode_module(annotate(proto, program=program, device=DEVICE, mapping=mapping))
    loops = []
    for computation in annotated.computations:
        for item in computation.instructions:
            assert item.opcode != "call"
            if item.opcode == "while":
                loops.append(tuple(item.called_computation_ids))
    assert len(set(sum(loops, ()))) == 4


# What is refused


def test_an_illegal_mapping_is_refused(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    mapping = random_mapping(program, DEVICE, 1, tries=150)
    moved = dataclasses.replace(mapping, offset=mapping.offset + 1)
    with pytest.raises(InputError) as caught:
        annotate(proto, program=program, device=DEVICE, mapping=moved)
    assert caught.value.code == "mapping-illegal"


def test_the_mapping_of_another_program_is_refused(compiler):
    protos = [proto_of(MODULES[name], compiler=compiler) for name in ("nested", "tuples")]
    programs = [build_program(proto) for proto in protos]
    mapping = random_mapping(programs[0], DEVICE, 1, tries=150)
    with pytest.raises(InputError) as caught:
        annotate(protos[1], program=programs[0], device=DEVICE, mapping=mapping)
    assert caught.value.code == "mapping-program"
    annotated = annotate(protos[0], program=programs[0], device=DEVICE, mapping=mapping)
    with pytest.raises(InputError) as caught:
        read_mapping(annotated, program=programs[1])
    assert caught.value.code == "mapping-program"


def test_a_module_without_a_mapping_is_refused(compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    with pytest.raises(InputError) as caught:
        read_mapping(proto, program=build_program(proto))
    assert caught.value.code == "mapping-missing"


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (b"buffer=", b"puffer=", "mapping-syntax"),
        (b"0:weight", b"0:weighs", "mapping-syntax"),
        (b"graphsmith_residency", b"graphsmith_residents", "mapping-syntax"),
    ],
)
def test_a_damaged_annotation_is_refused(old, new, code, compiler):
    proto = proto_of(LOOP_IN_PLACE, compiler=compiler)
    program = build_program(proto)
    row = {"buffer": "weight", "offset": 512, "start": 8, "ready": 8, "end": 9, "prefetched": True}
    _, text = through_xla(
        annotate(proto, program=program, device=DEVICE, mapping=inside(program, row)), compiler=compiler
    )
    data = text.encode().replace(b"0:after", b"0:weight")
    assert old in data
    _, (damaged, _) = compiler.call("parse_text", data.replace(old, new))
    with pytest.raises(InputError) as caught:
        read_mapping(damaged, program=program)
    assert caught.value.code == code
