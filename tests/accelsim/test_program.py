import dataclasses

import numpy as np
import pytest

from accelsim.errors import InputError
from accelsim.program import Program
from accelsim.readers.copies import insert_copies
from accelsim.readers.program import build_program
from accelsim.xla import Compiler
from accelsim.xla.schema import decode_module
from tests.accelsim.modules import REDUCER, entry
from tests.accelsim.scheduled import CONDITIONAL, LOOP_IN_PLACE, MODULES, NESTED, NO_COPIES, proto_of

SCHEDULED = "HloModule m, is_scheduled=true"


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def build(compiler):
    def build(*lines, header=SCHEDULED, before="", text=None):
        given = text or entry(*lines, header=header, before=before).decode()
        return build_program(proto_of(given, compiler=compiler))

    return build


def lives(program: Program) -> dict[str, tuple[int, int]]:
    ranges = zip(program.buffer_start.tolist(), program.buffer_end.tolist(), strict=True)
    return dict(zip(program.buffer_name, ranges, strict=True))


def buffer_of(program: Program, value: str) -> str:
    return program.buffer_name[program.value_buffer[program.value_name.index(value)]]


def traffic(program: Program, step: str) -> list[tuple[str, str, int]]:
    """("read" or "write", value, bytes) of a step."""
    number = program.step_name.index(step)
    return [
        ("write" if program.access_write[k] else "read", program.value_name[program.access_value[k]], moved)
        for k, moved in enumerate(program.access_bytes.tolist())
        if program.access_step[k] == number
    ]


# Steps, loops and live ranges


def test_it_puts_a_loop_in_line_once(build):
    program = build(text=LOOP_IN_PLACE)
    assert program.step_name == (
        "start", "double", "empty", "less", "wx", "update", "scaled", "next", "last", "sum",
    )  # fmt: skip
    assert program.step_region.tolist() == [-1, -1, -1, 0, 0, 0, 0, 0, -1, -1]
    assert program.step_repeat.tolist() == [1, 1, 1, 5, 4, 4, 4, 4, 1, 1]
    assert program.step_computation[3:5] == ("cond", "body")
    assert program.notes == ()


def test_it_finds_the_live_ranges_of_a_loop(build):
    program = build(text=LOOP_IN_PLACE)
    assert lives(program) == {
        "p": (0, 2),
        "weight": (0, 9),  # carried through the loop and read after it
        "c0": (0, 1),
        "start": (0, 8),  # the counter: copied before the loop, carried over all of it
        "double": (1, 10),
        "fill": (0, 3),
        "empty": (2, 10),  # updated in place in every iteration, then returned
        "n": (0, 8),  # constants of the loop are there in every iteration
        "zero": (0, 8),
        "scale": (0, 8),
        "one": (0, 8),
        "less": (3, 4),
        "wx": (4, 7),  # lives and dies inside an iteration
        "last": (8, 10),
        "sum": (9, 10),
    }
    returned = [name for name, output in zip(program.buffer_name, program.buffer_output, strict=True) if output]
    assert returned == ["empty", "sum"]
    given = [name for name, given in zip(program.buffer_name, program.buffer_input, strict=True) if given]
    assert set(given) == {"p", "weight", "c0", "fill", "n", "zero", "scale", "one"}


def test_a_loop_carries_each_element_in_one_buffer(build):
    program = build(text=LOOP_IN_PLACE)
    assert buffer_of(program, "bp{1}") == buffer_of(program, "scaled") == buffer_of(program, "loop{1}") == "double"
    assert buffer_of(program, "bp{2}") == buffer_of(program, "update") == buffer_of(program, "loop{2}") == "empty"
    assert buffer_of(program, "bp{3}") == buffer_of(program, "loop{3}") == "weight"


def test_loops_in_loops_multiply_and_are_one_region(build):
    program = build(text=NESTED)
    repeat = dict(zip(program.step_name, program.step_repeat.tolist(), strict=True))
    assert repeat == {
        "j": 1, "x": 1, "oless": 6, "kept": 5, "oj": 5, "oy": 5, "iless": 20, "ihalf": 15, "inext": 15,
        "osum": 5, "onext": 5, "s": 1,
    }  # fmt: skip
    assert program.step_region.tolist() == [-1, -1] + [0] * 9 + [-1]
    # Defined before the inner loop and read after it; defined before and carried through; born and dead inside.
    assert lives(program)["kept"] == (3, 10)
    assert lives(program)["oy"] == (5, 10)
    assert lives(program)["iless"] == (6, 7)
    assert lives(program)["in"] == (0, 11)


def test_each_branch_counts_once_and_the_results_share_one_buffer(build):
    program = build(text=CONDITIONAL)
    assert program.step_name == ("a2", "b2", "lsum", "lneg", "rexp", "rabs", "mix", "end")
    assert program.step_region.tolist() == [-1, -1, 0, 0, 0, 0, -1, -1]
    assert buffer_of(program, "lneg") == buffer_of(program, "rexp") == buffer_of(program, "c{0}")
    assert buffer_of(program, "lsum") == buffer_of(program, "rabs") == buffer_of(program, "c{1}")
    # Results of a branch live over the whole conditional; what is passed in lives through it.
    assert lives(program)["lneg"] == (2, 7)
    assert lives(program)["lsum"] == (2, 8)
    assert lives(program)["a2"] == (0, 6)
    assert lives(program)["b2"] == (1, 7)
    assert program.notes == ("1 conditional: every branch counts once",)


def test_a_loop_of_unknown_length_counts_once_and_says_so(build):
    program = build(text=LOOP_IN_PLACE.replace('"n":"4"', '"n":"?"'))
    assert program.step_repeat.tolist() == [1] * 10
    assert program.notes == ("1 loop of unknown trip count: counted as one iteration",)


def test_iterations_that_overflow_64_bits_are_refused(build):
    text = NESTED.replace('"n":"3"', '"n":"4000000000"').replace('"n":"5"', '"n":"4000000000"')
    with pytest.raises(InputError) as caught:
        build(text=text)
    assert caught.value.code == "size-overflow"


def test_what_is_carried_without_a_copy_gets_one(build, compiler):
    """Four carries where they enter, two elements that change places, the update of a third, a branch."""
    program = build(text=NO_COPIES)
    assert program.notes[2:] == ("8 copies were added for what loops and branches carry",)
    copies = [name for name in program.step_name if name.startswith("copy.")]
    assert [name.split(".")[1] for name in copies] == ["main"] * 4 + ["body"] * 3 + ["left"]
    q = lives(program)["q"]
    assert q == (0, program.step_name.index("b") + 1)
    assert buffer_of(program, "bp{1}") != buffer_of(program, "bp{2}")
    assert all(buffer_of(program, f"bp{{{n}}}") not in ("c0", "p", "q") for n in range(4))
    assert buffer_of(program, "d") == buffer_of(program, "rn") != "b"


@pytest.mark.parametrize("name", sorted(set(MODULES) - {"no_copies"}))
def test_a_module_with_all_its_copies_gets_no_more(name, compiler):
    assert insert_copies(decode_module(proto_of(MODULES[name], compiler=compiler))) == 0


def test_a_second_look_adds_no_copies(compiler):
    module = decode_module(proto_of(NO_COPIES, compiler=compiler))
    assert insert_copies(module) == 8
    assert insert_copies(module) == 0


def test_what_a_loop_does_not_change_needs_no_copy(build):
    """The weight is a parameter, is carried twice, and is read after the loop."""
    text = LOOP_IN_PLACE.replace("add(last, x_out)", "multiply(weight, last)")
    assert build(text=text).notes == ()


def test_a_module_without_a_schedule_is_refused(compiler):
    proto = proto_of(LOOP_IN_PLACE.replace(", is_scheduled=true", ""), compiler=compiler)
    with pytest.raises(InputError) as caught:
        build_program(proto)
    assert caught.value.code == "schedule-missing"


@pytest.mark.parametrize("change", ["reverse", "repeat", "drop"])
def test_a_schedule_that_cannot_be_is_refused(change, compiler):
    module = decode_module(proto_of(LOOP_IN_PLACE, compiler=compiler))
    order = module.schedule.sequences[module.entry_computation_id].instruction_ids
    changed = {"reverse": list(order)[::-1], "repeat": [*order, order[0]], "drop": list(order)[:-1]}[change]
    del order[:]
    order.extend(changed)
    with pytest.raises(InputError) as caught:
        build_program(module.SerializeToString())
    assert caught.value.code == "schedule-invalid"


@pytest.mark.parametrize("name", MODULES)
def test_a_program_is_well_formed(name, build):
    program = build(text=MODULES[name])
    assert (np.diff(program.access_step) >= 0).all()
    assert (program.buffer_start < program.buffer_end).all()
    assert (program.buffer_end <= program.steps).all()
    assert (program.buffer_size > 0).all()
    used = program.access_buffer
    assert (program.access_step >= program.buffer_start[used]).all()
    assert (program.access_step < program.buffer_end[used]).all()
    assert (program.access_bytes <= program.buffer_size[used]).all()
    assert (used == program.value_buffer[program.access_value]).all()
    for field in dataclasses.fields(Program):
        column = getattr(program, field.name)
        if isinstance(column, np.ndarray):
            assert column.dtype in (np.int32, np.int64, np.bool_), field.name


# Aliases


def test_what_only_forwards_is_no_step_and_no_value(build):
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        "t = (f32[8], f32[8]) tuple(n, p)",
        "o = (f32[8], f32[8]) opt-barrier(t)",
        "g = f32[8] get-tuple-element(o), index=0",
        "b = f32[2,4] bitcast(g)",
        "ROOT r = f32[2,4] abs(b)",
    )
    assert program.step_name == ("n", "r")
    assert program.value_name == ("p", "n", "r")


@pytest.mark.parametrize("alive", [False, True])
def test_an_update_is_in_place_unless_the_operand_is_read_later(alive, build):
    program = build(
        "p = f32[8,4] parameter(0)",
        "u = f32[1,4] parameter(1)",
        "i = s32[] parameter(2)",
        "n = f32[8,4] negate(p)",
        "d = f32[8,4] dynamic-update-slice(n, u, i, i)",
        "ROOT r = f32[8,4] add(d, n)" if alive else "ROOT r = f32[8,4] add(d, d)",
    )
    assert (buffer_of(program, "d") == "n") is not alive
    reads = [("read", "u", 16), ("read", "i", 4)]
    if alive:
        assert traffic(program, "d") == [("read", "n", 128), *reads, ("write", "d", 128)]
    else:
        assert traffic(program, "d") == [*reads, ("write", "d", 16)]


@pytest.mark.parametrize("given_away", [False, True])
def test_a_parameter_is_updated_in_place_only_if_the_caller_gave_it_away(given_away, build):
    alias = ", input_output_alias={ {}: (0, {}, may-alias) }" if given_away else ""
    program = build(
        "p = f32[8,4] parameter(0)",
        "u = f32[1,4] parameter(1)",
        "i = s32[] parameter(2)",
        "ROOT d = f32[8,4] dynamic-update-slice(p, u, i, i)",
        header=SCHEDULED + alias,
    )
    assert (buffer_of(program, "d") == "p") is given_away
    row = program.buffer_name.index("p")
    assert program.buffer_input[row] and bool(program.buffer_output[row]) is given_away


def test_a_parameter_and_the_result_that_aliases_it_share_a_buffer(build):
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        "ROOT r = (f32[8], f32[8]) tuple(n, n)",
        header=SCHEDULED + ", input_output_alias={ {1}: (0, {}, must-alias) }",
    )
    assert program.buffer_name == ("p",)


def test_a_parameter_that_is_needed_after_the_result_is_made_does_not_share(build):
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        "a = f32[8] add(n, p)",
        "ROOT r = (f32[8], f32[8]) tuple(n, a)",
        header=SCHEDULED + ", input_output_alias={ {0}: (0, {}, may-alias) }",
    )
    assert program.buffer_name == ("p", "n", "a")


FUSED_UPDATE = """fused {
  f0 = f32[8,4] parameter(0)
  f1 = f32[1,4] parameter(1)
  f2 = s32[] parameter(2)
  old = f32[1,4] dynamic-slice(f0, f2, f2), dynamic_slice_sizes={1,4}
  new = f32[1,4] add(old, f1)
  upd = f32[8,4] dynamic-update-slice(f0, new, f2, f2)
  ROOT out = f32[32] bitcast(upd)
}

"""


def test_a_fusion_that_ends_in_an_update_works_in_place(build):
    program = build(
        "p = f32[8,4] parameter(0)",
        "u = f32[1,4] parameter(1)",
        "i = s32[] parameter(2)",
        "n = f32[8,4] negate(p)",
        "ROOT f = f32[32] fusion(n, u, i), kind=kLoop, calls=fused",
        before=FUSED_UPDATE,
    )
    assert buffer_of(program, "f") == "n"
    assert traffic(program, "f") == [("read", "n", 16), ("read", "u", 16), ("read", "i", 4), ("write", "f", 16)]


def test_a_scatter_works_in_place(build):
    program = build(
        "p = f32[8,4] parameter(0)",
        "i = s32[2,1] parameter(1)",
        "u = f32[2,4] parameter(2)",
        "n = f32[8,4] negate(p)",
        "ROOT sc = f32[8,4] scatter(n, i, u), update_window_dims={1}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
        before=REDUCER,
    )
    assert buffer_of(program, "sc") == "n"
    assert traffic(program, "sc") == [("read", "n", 32), ("read", "i", 8), ("read", "u", 32), ("write", "sc", 32)]


def test_a_custom_call_shares_what_it_says(build):
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        'c = (f32[8], f32[4]) custom-call(p, n), custom_call_target="work", output_to_operand_aliasing={{0}: (1, {})}',
        "g = f32[8] get-tuple-element(c), index=0",
        "ROOT r = f32[8] abs(g)",
    )
    assert buffer_of(program, "c{0}") == "n"
    assert buffer_of(program, "c{1}") == "c{1}"
    assert program.notes == ("flops of 1 custom call unknown, counted as 0: work",)


def test_the_two_halves_of_an_asynchronous_pair_are_one_step(build):
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        "rs = f32[8] all-reduce-start(n), replica_groups={}, to_apply=add",
        "d = f32[8] all-reduce-done(rs)",
        "gs = (f32[8], f32[16]) all-gather-start(d), replica_groups={{0,1}}, dimensions={0}",
        "gd = f32[16] all-gather-done(gs)",
        "ROOT r = f32[16] negate(gd)",
        before=REDUCER,
    )
    assert program.step_name == ("n", "rs", "gs", "r")
    assert traffic(program, "gs") == [("read", "rs", 32), ("write", "gs{1}", 64)]
    assert traffic(program, "r")[0] == ("read", "gs{1}", 64)
    assert lives(program)["rs"] == (1, 3)


def test_a_wrapped_asynchronous_operation_is_one_step(build):
    before = """wrapped {
  wp = f32[8] parameter(0)
  ROOT wn = f32[8] sine(wp)
}

"""
    program = build(
        "p = f32[8] parameter(0)",
        "n = f32[8] negate(p)",
        "st = ((f32[8]), f32[8], s32[]) async-start(n), calls=wrapped",
        "m = f32[8] abs(p)",
        "dn = f32[8] async-done(st), calls=wrapped",
        "ROOT r = f32[8] add(m, dn)",
        before=before,
    )
    assert program.step_name == ("n", "st", "m", "r")
    assert program.step_flops.tolist() == [8, 8, 8, 8]
    assert traffic(program, "st") == [("read", "n", 32), ("write", "st{1}", 32)]
    assert lives(program)["st{1}"] == (1, 4)


def test_a_copy_is_a_step_with_its_own_buffer(build):
    program = build("p = f32[8] parameter(0)", "c = f32[8] copy(p)", "ROOT r = f32[8] negate(c)")
    assert program.step_name == ("c", "r")
    assert program.buffer_name == ("p", "c", "r")


def test_copies_of_a_module_that_was_mapped_elsewhere_are_taken_out(build):
    program = build(
        "p = f32[8]{0} parameter(0)",
        "s = (f32[8]{0:S(1)}, f32[8]{0}, u32[]{:S(2)}) copy-start(p)",
        "n = f32[8]{0:S(1)} negate(p)",
        "d = f32[8]{0:S(1)} copy-done(s)",
        "ROOT r = f32[8]{0} add(n, d)",
    )
    assert program.step_name == ("n", "r")
    assert traffic(program, "r") == [("read", "n", 32), ("read", "p", 32), ("write", "r", 32)]


# Bytes


def test_an_operand_that_is_used_twice_is_read_once(build):
    program = build("p = f32[8] parameter(0)", "ROOT r = f32[8] multiply(p, p)")
    assert traffic(program, "r") == [("read", "p", 32), ("write", "r", 32)]


def test_slices_and_gathers_read_what_comes_out(build):
    program = build(
        "p = f32[100,4] parameter(0)",
        "i = s32[2,1] parameter(1)",
        "s = f32[3,4] slice(p), slice={[0:3], [0:4]}",
        "ROOT g = f32[2,4] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
        " index_vector_dim=1, slice_sizes={1,4}",
    )
    assert traffic(program, "s") == [("read", "p", 48), ("write", "s", 48)]
    assert traffic(program, "g") == [("read", "p", 32), ("read", "i", 8), ("write", "g", 32)]


def test_a_fusion_reads_what_it_slices(build):
    before = """fused {
  f0 = f32[100] parameter(0)
  f1 = f32[100] parameter(1)
  a = f32[4] slice(f0), slice={[0:4]}
  fb = f32[10,10] bitcast(f0)
  b = f32[2,2] slice(fb), slice={[0:2], [0:2]}
  c = f32[4] bitcast(b)
  d = f32[4] add(a, c)
  e = f32[4] slice(f1), slice={[0:4]}
  g = f32[100] negate(f1)
  ROOT t = (f32[4], f32[4], f32[100]) tuple(d, e, g)
}

"""
    program = build(
        "p = f32[100] parameter(0)",
        "q = f32[100] parameter(1)",
        "ROOT f = (f32[4], f32[4], f32[100]) fusion(p, q), kind=kLoop, calls=fused",
        before=before,
    )
    assert traffic(program, "f") == [
        ("read", "p", 32),
        ("read", "q", 400),
        ("write", "f{0}", 16),
        ("write", "f{1}", 16),
        ("write", "f{2}", 400),
    ]


def test_tokens_and_empty_arrays_are_no_buffers(build):
    program = build(
        "p = f32[8] parameter(0)",
        "e = f32[0] constant({})",
        "k = token[] after-all()",
        'c = (f32[8], token[], f32[0,4]) custom-call(p, e, k), custom_call_target="work"',
        "ROOT r = f32[8] get-tuple-element(c), index=0",
    )
    assert program.value_name == ("p", "c{0}")


def test_small_types_take_a_byte_unless_the_layout_packs_them(build):
    program = build("p = s4[8]{0} parameter(0)", "ROOT r = s4[8]{0:E(4)} copy(p)")
    assert program.buffer_size.tolist() == [8, 4]
