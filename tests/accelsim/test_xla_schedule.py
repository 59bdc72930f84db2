import hashlib
import subprocess
import sys

import pytest

from accelsim.errors import CompilerError
from accelsim.readers.module import parse
from accelsim.xla import Compiler, schedule
from accelsim.xla.list_schedule import list_schedule
from accelsim.xla.schema import decode_module
from accelsim.xla.shape import byte_size
from tests.accelsim.modules import FILES, LOOP, MAML, REDUCER, RESNET, chain, entry


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


ON_ONE_PROCESSOR = """
import hashlib, os, sys
from accelsim.readers.module import parse
from accelsim.xla import Compiler, schedule

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with Compiler() as compiler:
    module = parse(sys.stdin.buffer.read(), compiler=compiler)
    print(hashlib.sha256(schedule(module.proto, compiler=compiler).proto).hexdigest())
"""


def assert_scheduled(proto: bytes) -> None:
    """Every computation outside of fusions has each of its instructions once, after all that it depends on."""
    module = decode_module(proto)
    fused = {
        number
        for computation in module.computations
        for item in computation.instructions
        if item.opcode == "fusion"
        for number in item.called_computation_ids
    }
    assert set(module.schedule.sequences) == {c.id for c in module.computations} - fused
    for computation in module.computations:
        if computation.id in fused:
            continue
        order = list(module.schedule.sequences[computation.id].instruction_ids)
        place = {number: position for position, number in enumerate(order)}
        assert sorted(order) == sorted(item.id for item in computation.instructions)
        for item in computation.instructions:
            assert all(place[other] < place[item.id] for other in (*item.operand_ids, *item.control_predecessor_ids))


def scheduled(data: bytes, compiler: Compiler):
    result = schedule(parse(data, compiler=compiler).proto, compiler=compiler)
    assert_scheduled(result.proto)
    return result


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:2])
def test_xla_schedules_what_other_tools_wrote(path, compiler):
    result = scheduled(path.read_bytes(), compiler)
    assert result.source == "xla-cpu"
    assert b"graphsmith" not in result.proto
    assert compiler.call("parse_proto", result.proto)[1][1].splitlines()[0].find(b"is_scheduled=true") > 0


def test_the_module_keeps_its_name(compiler):
    result = scheduled(MAML.read_bytes(), compiler)
    assert decode_module(result.proto).name == "jit_train_step.26"


def test_the_schedule_is_the_same_in_any_child(compiler):
    with Compiler() as other:
        assert scheduled(MAML.read_bytes(), other).proto == scheduled(MAML.read_bytes(), compiler).proto


def test_the_schedule_does_not_depend_on_the_number_of_processors(compiler):
    done = subprocess.run([sys.executable, "-c", ON_ONE_PROCESSOR], input=RESNET.read_bytes(), capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().strip() == hashlib.sha256(scheduled(RESNET.read_bytes(), compiler).proto).hexdigest()


def test_a_scheduled_module_keeps_its_order(compiler):
    data = entry(
        "p = f32[4] parameter(0)",
        "late = f32[4] negate(p)",
        "early = f32[4] exponential(p)",
        "ROOT r = f32[4] add(early, late)",
        header="HloModule m, is_scheduled=true",
    )
    result = scheduled(data, compiler)
    module = decode_module(result.proto)
    names = {item.id: item.name for item in module.computations[0].instructions}
    order = [names[number] for number in module.schedule.sequences[module.entry_computation_id].instruction_ids]
    assert (result.source, order) == ("input", ["p", "late", "early", "r"])


def test_loops_keep_their_bodies(compiler):
    module = decode_module(scheduled(LOOP.encode(), compiler).proto)
    (loop,) = (i for c in module.computations for i in c.instructions if i.opcode == "while")
    assert all(number in module.schedule.sequences for number in loop.called_computation_ids)


CUSTOM_CALLS = {
    "gpu": 'ROOT c = (f32[4,4], s8[4194304]) custom-call(p, p), custom_call_target="__cublas$gemm"',
    "neuron": 'ROOT c = f32[4,4] custom-call(p), custom_call_target="AwsNeuronErf", '
    "api_version=API_VERSION_UNSPECIFIED",
    "python": 'ROOT c = f32[4,4] custom-call(p), custom_call_target="xla_ffi_python_cpu_callback", '
    'api_version=API_VERSION_TYPED_FFI, backend_config="{index = 0 : ui64}"',
    "side effect": 'ROOT c = f32[4,4] custom-call(p), custom_call_target="other", custom_call_has_side_effect=true',
}


@pytest.mark.parametrize("line", CUSTOM_CALLS.values(), ids=CUSTOM_CALLS.keys())
def test_custom_calls_are_scheduled_and_never_run(line, compiler):
    result = scheduled(entry("p = f32[4,4] parameter(0)", line), compiler)
    assert result.source == "xla-cpu"
    opcodes = [item.opcode for c in decode_module(result.proto).computations for item in c.instructions]
    assert opcodes.count("custom-call") == 1


def test_a_program_of_many_partitions_is_scheduled(compiler):
    devices = ",".join(map(str, range(128)))
    data = entry(
        "p = f32[4,4] parameter(0)",
        "i = u32[] partition-id()",
        f"g = f32[512,4] all-gather(p), channel_id=2, replica_groups={{{{{devices}}}}}, dimensions={{0}}, "
        "use_global_device_ids=true",
        f"r = f32[4,4] reduce-scatter(g), channel_id=4, replica_groups={{{{{devices}}}}}, dimensions={{0}}, "
        "to_apply=add, use_global_device_ids=true",
        "ROOT t = (f32[4,4], u32[]) tuple(r, i)",
        header="HloModule m, num_partitions=128",
        before=REDUCER,
    )
    assert scheduled(data, compiler).source == "xla-cpu"


def test_random_number_state_is_scheduled(compiler):
    data = entry(
        "s = u64[2] rng-get-and-update-state(), delta=1",
        "r = (u64[2], u32[8]) rng-bit-generator(s), algorithm=rng_philox",
        "ROOT g = u32[8] get-tuple-element(r), index=1",
    )
    assert scheduled(data, compiler).source == "xla-cpu"


def test_copies_and_host_transfers_are_scheduled(compiler):
    data = entry(
        "p = f32[4] parameter(0)",
        "s = (f32[4]{0:S(1)}, f32[4], u32[]) copy-start(p)",
        "d = f32[4]{0:S(1)} copy-done(s)",
        "t = token[] after-all()",
        "i = ((f32[4]), token[]) infeed(t)",
        "g = (f32[4]) get-tuple-element(i), index=0",
        "h = f32[4] get-tuple-element(g), index=0",
        "ROOT r = f32[4] add(d, h)",
    )
    assert scheduled(data, compiler).source == "xla-cpu"


def test_thousands_of_instructions_are_scheduled(compiler):
    assert scheduled(chain(5000), compiler).source == "xla-cpu"


def test_where_xla_refuses_we_schedule_and_say_so(compiler):
    result = scheduled(entry("p = f32[4] parameter(0)", "ROOT r = f32[5] add(p, p)"), compiler)
    assert result.source == "list"
    assert "list schedule" in result.notes[0] and "requires the same shape" in result.notes[0]


@pytest.mark.parametrize("limits", [{"seconds": 0.001}, {"memory_bytes": 1 << 28}], ids=["time", "memory"])
def test_where_xla_dies_we_schedule_and_say_so(limits, compiler):
    proto = parse(MAML.read_bytes(), compiler=compiler).proto
    with Compiler(**limits) as poor:
        result = schedule(proto, compiler=poor)
    assert_scheduled(result.proto)
    assert (result.source, "list schedule" in result.notes[0]) == ("list", True)


def test_a_busy_compiler_is_no_reason_for_another_schedule(compiler):
    proto = parse(MAML.read_bytes(), compiler=compiler).proto
    with Compiler(children=1, wait_seconds=0.01) as pool:
        pool._slots.acquire()
        with pytest.raises(CompilerError) as caught:
            schedule(proto, compiler=pool)
        pool._slots.release()
    assert caught.value.kind == "busy"


def list_order(data: bytes, compiler: Compiler) -> list[str]:
    module = decode_module(parse(data, compiler=compiler).proto)
    (computation,) = (c for c in module.computations if c.id == module.entry_computation_id)
    names = {item.id: item.name for item in computation.instructions}
    return [names[number] for number in list_schedule(computation)]


def peak(data: bytes, order: list[str], compiler: Compiler) -> int:
    """Most bytes live at once, parameters apart, when no result shares storage."""
    (computation,) = decode_module(parse(data, compiler=compiler).proto).computations
    items = {item.name: item for item in computation.instructions}
    names = {item.id: item.name for item in computation.instructions}
    last = {names[number]: step for step, name in enumerate(order) for number in items[name].operand_ids}
    live: set[str] = set()
    most = 0
    for step, name in enumerate(order):
        if items[name].opcode != "parameter":
            live.add(name)
        most = max(most, sum(byte_size(items[other].shape) for other in live))
        live -= {other for other in live if last.get(other, len(order)) == step}
    return most


WIDE = entry(
    "p = f32[] parameter(0)",
    *(f"big{n} = f32[1000] broadcast(p), dimensions={{}}" for n in range(8)),
    *(f"small{n} = f32[10] slice(big{n}), slice={{[0:10]}}" for n in range(8)),
    "sum0 = f32[10] add(small0, small1)",
    *(f"sum{n} = f32[10] add(sum{n - 1}, small{n + 1})" for n in range(1, 7)),
    "ROOT r = f32[10] negate(sum6)",
)


def test_the_list_schedule_frees_a_large_buffer_before_it_makes_the_next(compiler):
    given = [line.split(" = ")[0].strip().removeprefix("ROOT ") for line in WIDE.decode().splitlines() if " = " in line]
    order = list_order(WIDE, compiler)
    assert sorted(order) == sorted(given)
    assert peak(WIDE, order, compiler) < 4200 < 32_000 <= peak(WIDE, given, compiler)


def test_the_list_schedule_sees_through_tuples(compiler):
    data = entry(
        "p = f32[] parameter(0)",
        "a = f32[1000] broadcast(p), dimensions={}",
        "b = f32[500] broadcast(p), dimensions={}",
        "t = (f32[1000], f32[500]) tuple(a, b)",
        "x = f32[1000] get-tuple-element(t), index=0",
        "y = f32[500] get-tuple-element(t), index=1",
        "keep = f32[600] slice(x), slice={[0:600]}",
        "free = f32[10] slice(y), slice={[0:10]}",
        "ROOT r = (f32[600], f32[10]) tuple(keep, free)",
    )
    order = list_order(data, compiler)
    # free adds 10 - 500 elements, keep adds 600 - 1000: the larger gain comes first.
    assert order.index("free") < order.index("keep")


def test_the_list_schedule_never_frees_what_the_root_returns(compiler):
    data = entry(
        "p = f32[] parameter(0)",
        "a = f32[1000] broadcast(p), dimensions={}",
        "b = f32[900] broadcast(p), dimensions={}",
        "use_a = f32[10] slice(a), slice={[0:10]}",
        "use_b = f32[20] slice(b), slice={[0:20]}",
        "ROOT r = (f32[1000], f32[10], f32[20]) tuple(a, use_a, use_b)",
    )
    order = list_order(data, compiler)
    assert order[:3] == ["p", "b", "use_b"]


def test_the_list_schedule_keeps_control_dependencies(compiler):
    data = entry(
        "p = f32[100] parameter(0)",
        "first = f32[100] negate(p)",
        "second = f32[2] slice(p), slice={[0:2]}, control-predecessors={first}",
        "ROOT r = (f32[100], f32[2]) tuple(first, second)",
    )
    order = list_order(data, compiler)
    assert order.index("first") < order.index("second")


def test_the_list_schedule_takes_a_long_chain_without_recursion(compiler):
    assert len(list_order(chain(20_000), compiler)) == 20_001
