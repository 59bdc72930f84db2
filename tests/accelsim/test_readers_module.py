import gzip
import subprocess
import sys
import threading

import pytest

from accelsim.errors import CompilerError, InputError
from accelsim.readers.module import parse
from accelsim.xla import Compiler
from accelsim.xla.schema import HloProto, HloSnapshot, decode_module
from tests.accelsim.modules import FILES, LOOP, MAML, REDUCER, RESNET, STABLEHLO, chain, entry, text_of

NEURON = [path for path in FILES if "neuron" in path.name]

# Made once with jaxlib's serialize_portable_artifact(STABLEHLO, "1.0.0") in a child; see portable_artifact.
ARTIFACT = (
    "import sys\nfrom jaxlib import _jax\n"
    "sys.stdout.buffer.write(_jax.mlir.serialize_portable_artifact(sys.stdin.read(), '1.0.0'))"
)


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def portable_artifact() -> bytes:
    done = subprocess.run([sys.executable, "-c", ARTIFACT], input=STABLEHLO.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(data: bytes, compiler: Compiler, **options) -> InputError:
    with pytest.raises(InputError) as caught:
        parse(data, compiler=compiler, **options)
    return caught.value


@pytest.mark.parametrize(
    ("name", "instructions", "parameters"),
    [
        ("01_gpt2_neuron_tp1_2layer", 356, 44),
        ("05_llama_tp2_neuron", 212, 17),
        ("06_resnet50_keras_jax_f32", 1755, 321),
        ("12_efficientnet_jax_lambda", 2002, 2),
        ("14_maml_flax_train_step", 146, 15),
    ],
)
def test_it_parses_what_other_tools_wrote(name, instructions, parameters, compiler):
    (path,) = (path for path in FILES if path.name.startswith(name))
    module = parse(path.read_bytes(), compiler=compiler)
    assert (module.instructions, module.parameters, module.format) == (instructions, parameters, "hlo-text")
    assert len(decode_module(module.proto).computations) == module.computations


@pytest.mark.parametrize(("path", "times"), list(zip(NEURON, [41, 14], strict=True)))
def test_it_says_how_often_it_normalised_an_attribute(path, times, compiler):
    (note,) = parse(path.read_bytes(), compiler=compiler).notes
    assert note.startswith(f"Normalised {times} times: ") and "API_VERSION_UNSPECIFIED" in note


def test_it_normalises_nothing_in_strings_and_comments(compiler):
    data = entry(
        "p = f32[4] parameter(0) // api_version=API_VERSION_UNSPECIFIED",
        'ROOT c = f32[4] custom-call(p), custom_call_target="api_version=API_VERSION_UNSPECIFIED", '
        "api_version=API_VERSION_UNSPECIFIED",
    )
    module = parse(data, compiler=compiler)
    (instruction,) = (i for i in decode_module(module.proto).computations[0].instructions if i.opcode == "custom-call")
    assert instruction.custom_call_target == "api_version=API_VERSION_UNSPECIFIED"
    assert module.notes[0].startswith("Normalised 1 times")


def test_it_normalises_nothing_that_xla_accepts(compiler):
    assert parse(MAML.read_bytes(), compiler=compiler).notes == ()


def test_gzip_text_and_proto_give_the_same_module(compiler):
    text = text_of(MAML).encode()
    from_gzip, from_text = parse(MAML.read_bytes(), compiler=compiler), parse(text, compiler=compiler)
    from_proto = parse(from_text.proto, compiler=compiler)
    assert from_gzip == from_text
    assert (from_proto.proto, from_proto.text) == (from_text.proto, from_text.text)
    assert from_proto.format == "hlo-proto"


def test_a_proto_may_be_wrapped_as_xla_dumps_it(compiler):
    module = parse(RESNET.read_bytes(), compiler=compiler)
    wrapped, snapshot = HloProto(), HloSnapshot()
    wrapped.hlo_module.ParseFromString(module.proto)
    snapshot.hlo.CopyFrom(wrapped)
    for data in (wrapped, snapshot):
        assert parse(gzip.compress(data.SerializeToString()), compiler=compiler).proto == module.proto


def test_it_parses_stablehlo_text(compiler):
    module = parse(STABLEHLO.encode(), compiler=compiler)
    assert (module.name, module.format, module.instructions, module.parameters) == ("jit_f", "stablehlo-text", 2, 1)


def test_it_parses_a_portable_stablehlo_artifact(compiler, portable_artifact):
    module = parse(portable_artifact, compiler=compiler)
    assert module.format == "stablehlo-bytecode"
    assert module.proto == parse(STABLEHLO.encode(), compiler=compiler).proto


def test_it_parses_concatenated_gzip_members(compiler):
    data = LOOP.encode()
    both = gzip.compress(data[:100]) + gzip.compress(data[100:])
    assert parse(both, compiler=compiler) == parse(data, compiler=compiler)


def test_the_same_bytes_give_the_same_proto_in_any_child(compiler):
    data = RESNET.read_bytes()
    with Compiler() as other:
        assert parse(data, compiler=other).proto == parse(data, compiler=compiler).proto


def test_without_header_and_entry_the_last_computation_is_the_entry(compiler):
    module = parse(
        b"a {\n  ROOT p = f32[] parameter(0)\n}\n\nb {\n  ROOT q = f32[2] parameter(0)\n}\n", compiler=compiler
    )
    assert module.entry == "b"
    assert any("no HloModule header" in note for note in module.notes)
    assert any("the last one is the entry" in note for note in module.notes)


def test_a_header_without_entry_is_noted_once(compiler):
    (note,) = parse(LOOP.replace("ENTRY e", "e").encode(), compiler=compiler).notes
    assert "the last one is the entry" in note


def test_comments_and_a_byte_order_mark_may_come_first(compiler):
    data = b"\xef\xbb\xbf// a dump\r\n" + entry("ROOT p = f32[4] parameter(0)").replace(b"\n", b"\r\n")
    assert parse(data, compiler=compiler).notes == ()


def test_bytes_that_are_not_utf_8_are_replaced_and_noted(compiler):
    data = entry("p = f32[4] parameter(0)", 'ROOT n = f32[4] negate(p), metadata={op_name="caf\xe9"}')
    module = parse(data.decode().encode("latin-1"), compiler=compiler)
    assert any("line 5" in note and "UTF-8" in note for note in module.notes)


def test_escaped_bytes_that_are_not_utf_8_are_replaced_and_noted(compiler):
    data = entry(
        "p = f32[4] parameter(0)",
        'ROOT c = f32[4] custom-call(p), custom_call_target="t\\377", metadata={op_name="a/\\351"}, '
        'frontend_attributes={k="\\300"}, backend_config="\\377"',
    )
    module = parse(data, compiler=compiler)
    item = decode_module(module.proto).computations[0].instructions[1]
    assert (item.custom_call_target, item.metadata.op_name) == ("t\ufffd", "a/\ufffd")
    assert dict(item.frontend_attributes.map) == {"k": "\ufffd"}
    assert item.backend_config == b"\xff"
    assert module.notes == ("3 strings had bytes that are not UTF-8; they were replaced by U+FFFD.",)


def test_names_with_markup_stay_text(compiler):
    name = "<img src=x onerror=alert(1)>"
    module = parse(
        entry("p = f32[] parameter(0)", f'ROOT n = f32[] negate(p), metadata={{op_name="{name}"}}'), compiler=compiler
    )
    assert decode_module(module.proto).computations[0].instructions[1].metadata.op_name == name


def test_partitions_are_noted(compiler):
    data = entry(
        "p = f32[4,4] parameter(0)",
        "ROOT r = f32[4,4] all-reduce(p), replica_groups=[2,128]<=[256], channel_id=1, use_global_device_ids=true, "
        "to_apply=add",
        header="HloModule m, num_partitions=256",
        before=REDUCER,
    )
    assert "256 partitions" in parse(data, compiler=compiler).notes[0]


def test_the_partitions_of_a_proto_are_noted(compiler):
    module = decode_module(parse(LOOP.encode(), compiler=compiler).proto)
    module.device_assignment.replica_count = 2
    module.device_assignment.computation_count = 128
    for _ in range(128):
        module.device_assignment.computation_devices.add().replica_device_ids.extend([0, 1])
    (note,) = parse(module.SerializeToString(), compiler=compiler).notes
    assert "128 partitions and 2 replicas" in note


def test_sharding_is_noted(compiler):
    data = entry("ROOT p = f32[256] parameter(0), sharding={devices=[128]<=[128]}", header="HloModule m")
    assert "Sharding" in parse(data, compiler=compiler).notes[0]


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b"", "empty", "empty"),
        (b" \n\t\n", "empty", "white space"),
        (gzip.compress(b""), "empty", "decompressed"),
        (MAML.read_bytes()[:-30], "gzip-broken", "truncated"),
        (MAML.read_bytes()[:500] + b"\0" * 500 + MAML.read_bytes()[1000:], "gzip-broken", "broken"),
        (bytes(range(256)) * 4, "unknown-format", "neither text nor"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "unknown-format", "neither text nor"),
        (b"PK\x03\x04rest", "unknown-format", "zip archive"),
        (b"hello world", "hlo-syntax", "does not begin with HloModule"),
        (b'{"nodes": []}', "hlo-syntax", "does not begin with HloModule"),
        (LOOP[:300].encode(), "hlo-syntax", "may be truncated"),
        (b"HloModule m\n", "hlo-syntax", "may be truncated"),
        (STABLEHLO[:120].encode(), "stablehlo-syntax", "refuses line"),
        (b"ML\xefR\x0dStableHLO_v1.0.0\0\1\2", "stablehlo-syntax", "refuses"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_it_says_what_is_wrong_with_bad_input(data, code, words, compiler):
    error = refusal(data, compiler)
    assert (error.code, words in error.message) == (code, True), error.message


def test_a_truncated_proto_is_refused(compiler):
    proto = parse(MAML.read_bytes(), compiler=compiler).proto
    assert refusal(proto[: len(proto) // 2], compiler).code == "unknown-format"


def test_a_proto_that_contradicts_itself_is_refused(compiler):
    module = decode_module(parse(LOOP.encode(), compiler=compiler).proto)
    module.computations[0].root_id = 10**9
    error = refusal(module.SerializeToString(), compiler)
    assert error.code in ("proto-syntax", "parser-crashed")


def test_an_unknown_opcode_is_named_with_its_place(compiler):
    error = refusal(entry("p = f32[4] parameter(0)", "ROOT r = f32[4] frobnicate(p)"), compiler)
    assert (error.code, error.line, error.column) == ("hlo-syntax", 5, 19)
    assert "frobnicate" in error.message and "line 5, column 19" in error.message


def test_an_unknown_operand_is_named_with_its_place(compiler):
    error = refusal(entry("p = f32[4] parameter(0)", "ROOT r = f32[4] add(p, missing)"), compiler)
    assert (error.line, "instruction does not exist: missing" in error.message) == (5, True)


def test_stablehlo_errors_have_their_place(compiler):
    error = refusal(STABLEHLO.replace("add %a, %a", "add %a, %b").encode(), compiler)
    assert (error.code, error.line, "undeclared SSA value" in error.message) == ("stablehlo-syntax", 3, True)


def test_stablehlo_without_main_is_refused(compiler):
    assert "main" in refusal(STABLEHLO.replace("@main", "@other").encode(), compiler).message


def test_a_module_that_makes_the_parser_abort_is_an_input_error(compiler):
    error = refusal(entry("p = f32[4] parameter(3)", "ROOT r = f32[4] add(p, p)"), compiler)
    assert (error.code, "invalid parameter number" in error.message) == ("parser-crashed", True)


@pytest.mark.parametrize(
    ("lines", "code", "words"),
    [
        (("ROOT p = f32[9223372036854775807,2] parameter(0)",), "shape-overflow", "instruction p in e"),
        (("ROOT p = f32[9223372036854775807] parameter(0)",), "shape-overflow", "over 64 bits"),
        (("p = f32[?,256] parameter(0)", "ROOT r = f32[?,256] negate(p)"), "shape-unbounded", "instruction p in e"),
        (("ROOT p = (s8[4], f32[4611686018427387904]) parameter(0)",), "hlo-syntax", "names no place and no cause"),
        (
            ("p = s8[9223372036854775807] parameter(0)", "ROOT q = s8[9223372036854775807] negate(p)"),
            "shape-overflow",
            "together",
        ),
        (("ROOT p = f32[99999999999999999999] parameter(0)",), "hlo-syntax", "expects integer"),
        (("ROOT p = f32[-4] parameter(0)",), "hlo-syntax", "a negative dimension"),
        (("p = (f32[4]) parameter(0)", "ROOT g = f32[4] get-tuple-element(p), index=9"), "hlo-invalid", "element 9"),
        (("p = f32[4] parameter(0)", "ROOT g = f32[4] get-tuple-element(p), index=0"), "hlo-invalid", "f32[4]"),
        (("p = (f32[4]) parameter(0)", "ROOT g = f32[5] get-tuple-element(p), index=0"), "hlo-invalid", "f32[5]"),
        (("p = f32[4] parameter(0)", "ROOT t = (f32[4], f32[4]) tuple(p)"), "hlo-syntax", "expects 2 operands"),
        (("p = f32[4] parameter(0)", "ROOT t = (f32[5]) tuple(p)"), "hlo-invalid", "does not fit"),
        (("p = f32[] parameter(0)", "ROOT r = f32[] call(p), to_apply=add"), "hlo-invalid", "1 operands go to"),
        (
            ("p = f32[4] parameter(0)", "ROOT r = f32[] dot(p, p), lhs_contracting_dims={7}, rhs_contracting_dims={0}"),
            "hlo-invalid",
            "has not all of the dimensions (7,)",
        ),
        (
            (
                "p = f32[4,4] parameter(0)",
                "ROOT r = f32[4,4] convolution(p, p), window={size=3x3}, dim_labels=b01f_01io->b01f",
            ),
            "hlo-invalid",
            "does not have the dimensions",
        ),
        (("p = f32[4] parameter(0)", "ROOT r = f32[4] cholesky(p), lower=true"), "hlo-invalid", "no matrix"),
        (
            (
                "p = f32[2000000000,2000000000] parameter(0)",
                "ROOT r = f32[2000000000,2000000000] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
            ),
            "shape-overflow",
            "over 64 bits",
        ),
        (
            (
                "p = s8[2000000000,1000000000] parameter(0)",
                "ROOT r = s8[2000000000,2000000000] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
            ),
            "size-overflow",
            "operations of r do not fit in 64 bits",
        ),
        (
            ("p = f32[2] parameter(0)", "ROOT r = f32[] fusion(p, p), kind=kLoop, calls=add"),
            "hlo-invalid",
            "but parameter a is f32[]",
        ),
    ],
)
def test_it_refuses_what_nothing_can_be_computed_for(lines, code, words, compiler):
    error = refusal(entry(*lines, before=REDUCER), compiler)
    assert (error.code, words in error.message) == (code, True), error.message


def test_sizes_just_under_64_bits_are_exact(compiler):
    module = parse(entry("ROOT p = s8[9223372036854775807] parameter(0)"), compiler=compiler)
    assert list(decode_module(module.proto).computations[0].instructions[0].shape.dimensions) == [2**63 - 1]


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress], ids=["plain", "gzip"])
def test_the_limit_is_named(pack, compiler):
    data = chain(100)
    assert parse(pack(data), compiler=compiler, limit_bytes=len(data)).instructions == 101
    error = refusal(pack(data), compiler, limit_bytes=len(data) - 1)
    assert (error.code, f"{(len(data) - 1) / 1e6:g} MB" in error.message) == ("too-large", True)


def test_the_default_limit_is_64_mb(compiler):
    error = refusal(b" " * 64_000_001, compiler)
    assert (error.code, "64 MB" in error.message) == ("too-large", True)


def test_a_zip_bomb_is_never_held_in_memory(compiler):
    bomb = gzip.compress(b"\0" * 300_000_000, compresslevel=1)
    program = (
        "import resource, sys\nfrom accelsim.errors import InputError\nfrom accelsim.readers.module import unpack\n"
        "data = sys.stdin.buffer.read()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try: unpack(data, limit_bytes=10**6)\n"
        "except InputError as error: print(error.code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=bomb, capture_output=True)
    code, kilobytes = done.stdout.split()
    assert (code, int(kilobytes) < 50_000) == (b"too-large", True)


@pytest.mark.parametrize(
    "data", [b'"' + b'\\"' * 500_000, b"/*" * 500_000, b"HloModule m\n" + b"\n" * 2_000_000, b'"a' * 500_000]
)
def test_no_text_makes_the_reader_itself_slow(data, compiler):
    done = threading.Event()

    def read() -> None:
        refusal(data, compiler)
        done.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(60)
    assert done.is_set()


def test_a_busy_compiler_is_not_the_users_fault(compiler):
    with Compiler(children=1, wait_seconds=0.01) as pool:
        pool._slots.acquire()
        with pytest.raises(CompilerError) as caught:
            parse(LOOP.encode(), compiler=pool)
        pool._slots.release()
    assert caught.value.kind == "busy"


def test_a_parser_that_runs_out_of_memory_or_time_is_an_input_error():
    with Compiler(memory_bytes=1 << 30, seconds=30) as pool:
        assert refusal(entry("ROOT c = f32[1000000000] constant({...})"), pool).code == "parser-memory"
    with Compiler(seconds=0.001) as pool:
        assert refusal(LOOP.encode(), pool).code == "parser-timeout"
