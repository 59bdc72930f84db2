"""Operations against XLA's own count, which runs in a process of its own."""

import base64
import json
import os
import subprocess
import sys

import pytest

from accelsim.errors import InputError
from accelsim.readers.flops import FlopCounter
from accelsim.readers.module import parse
from accelsim.readers.program import build_program
from accelsim.xla import Compiler
from accelsim.xla.schema import decode_module
from tests.accelsim.modules import EFFICIENTNET, MAML, REDUCER, RESNET, entry

# Reads {name: proto} and makes some modules with JAX; writes {name: [proto, flops, transcendentals]}.
XLA = """
import base64, json, sys
import jax, jax.numpy as jnp
from jaxlib import _hlo, _jax

def step(carry, w):
    return jnp.tanh(carry @ w), carry.sum()

def conv(x, k, **options):
    return jax.lax.conv_general_dilated(x, k, (2, 1), **options, dimension_numbers=("NHWC", "HWIO", "NHWC"))

x, w = jnp.ones((64, 32)), jnp.ones((32, 48))
image, kernel = jnp.ones((2, 17, 19, 6)), jnp.ones((3, 3, 6, 8))
functions = {
    "dot": (lambda a, b: jax.nn.softmax(a @ b), x, w),
    "batched": (lambda a: jnp.einsum("bij,bkj->bik", a, a), jnp.ones((5, 6, 7))),
    "scan": (lambda a, b: jax.lax.scan(step, a, b), jnp.ones((4, 8)), jnp.ones((10, 8, 8))),
    "same": (lambda a, b: conv(a, b, padding="SAME"), image, kernel),
    "dilated": (lambda a, b: conv(a, b, padding=((2, 1), (0, 3)), rhs_dilation=(2, 1)), image, kernel),
    "holes": (lambda a, b: conv(a, b, padding=((2, 3), (1, 1)), lhs_dilation=(2, 3)), image, kernel),
    "groups": (lambda a, b: conv(a, b, padding="VALID", feature_group_count=3), image, jnp.ones((3, 3, 2, 9))),
    "gradient": (jax.grad(lambda a, b: conv(a, b, padding="SAME").sum(), argnums=(0, 1)), image, kernel),
    "pool": (jax.grad(lambda a: jax.lax.reduce_window(a, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1),
             "SAME").sum()), image),
    "sort": (lambda a: jnp.sort(a, axis=0), x),
    "scatter": (lambda a: a.at[jnp.array([1, 2, 5])].add(2.0), x),
    "linear": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(64)), x),
    "fft": (jnp.fft.rfft, x),
}
modules = {name: base64.b64decode(text) for name, text in json.load(sys.stdin).items()}
for name, (function, *arguments) in functions.items():
    modules[name] = jax.jit(function).lower(*arguments).compiler_ir("hlo").as_serialized_hlo_module_proto()
client = jax.devices("cpu")[0].client
answers = {}
for name, proto in modules.items():
    found = _jax.hlo_module_cost_analysis(client, _hlo.HloModule.from_serialized_hlo_module_proto(proto))
    text = base64.b64encode(proto).decode()
    answers[name] = [text, found.get("flops", 0.0), found.get("transcendentals", 0.0)]
print(json.dumps(answers))
"""

OPERATIONS = {
    "convert": ["ROOT r = s32[10,20] convert(p)"],
    "select": ["c = pred[10,20] compare(p, p), direction=LT", "ROOT r = f32[10,20] select(c, p, p)"],
    "clamp": ["ROOT r = f32[10,20] clamp(p, p, p)"],
    "copy": ["ROOT r = f32[10,20] copy(p)"],
    "transpose": ["ROOT r = f32[20,10] transpose(p), dimensions={1,0}"],
    "reduce": ["z = f32[] constant(0)", "ROOT r = f32[10] reduce(p, z), dimensions={1}, to_apply=add"],
    "window": [
        "z = f32[] constant(0)",
        "ROOT r = f32[10,20] reduce-window(p, z), window={size=3x1 pad=1_1x0_0}, to_apply=add",
    ],
    "map": ["ROOT r = f32[10,20] map(p, p), dimensions={0,1}, to_apply=add"],
    "all-reduce": ["ROOT r = f32[10,20] all-reduce(p), replica_groups={}, to_apply=add"],
    "triangular": [
        "q = f32[10,10] slice(p), slice={[0:10], [0:10]}",
        "ROOT r = f32[10,20] triangular-solve(q, p), left_side=true, lower=true, transpose_a=NO_TRANSPOSE",
    ],
    "random": ["z = u64[2] constant({1, 2})", "ROOT r = (u64[2], u32[9]) rng-bit-generator(z), algorithm=rng_default"],
    "complex": ["c = c64[10,20] complex(p, p)", "ROOT r = c64[10,20] multiply(c, c)"],
}


@pytest.fixture(scope="module")
def compiler():
    with Compiler(children=1) as pool:
        yield pool


@pytest.fixture(scope="module")
def answers(compiler):
    modules = {path.name: parse(path.read_bytes(), compiler=compiler).proto for path in (RESNET, EFFICIENTNET, MAML)}
    for name, lines in OPERATIONS.items():
        data = entry("p = f32[10,20] parameter(0)", *lines, before=REDUCER)
        modules[name] = parse(data, compiler=compiler).proto
    given = json.dumps({name: base64.b64encode(proto).decode() for name, proto in modules.items()})
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", XLA], input=given, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def flops_of(proto: bytes) -> int:
    """Schedule every computation as it is written, and add up the steps of its program."""
    module = decode_module(proto)
    for computation in module.computations:
        order = module.schedule.sequences[computation.id].instruction_ids
        order.extend(item.id for item in computation.instructions)
    program = build_program(module.SerializeToString())
    assert (program.step_repeat == 1).all()  # nothing has told the trip counts yet
    return int(program.step_flops.sum())


def test_it_counts_as_xla_does(answers):
    counted = {name: flops_of(base64.b64decode(text)) for name, (text, _, _) in answers.items()}
    expected = {name: flops + transcendentals for name, (_, flops, transcendentals) in answers.items()}
    wrong = {
        name: (count, expected[name])
        for name, count in counted.items()
        if abs(count - expected[name]) > 0.01 * expected[name]
    }
    assert not wrong
    assert set(answers) >= {RESNET.name, "scan", "gradient", *OPERATIONS}
    assert expected[RESNET.name] > 1e9


@pytest.mark.parametrize(
    ("target", "config"),
    [
        ("__onednn$matmul", "{}"),
        ("__cublas$gemm", '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'),
    ],
)
def test_a_matrix_multiplication_of_a_library_counts_like_a_dot(target, config, compiler):
    data = entry(
        "p = f32[10,20] parameter(0)",
        "q = f32[20,30] parameter(1)",
        f'ROOT r = f32[10,30] custom-call(p, q), custom_call_target="{target}", backend_config={config}',
    )
    assert flops_of(parse(data, compiler=compiler).proto) == 2 * 10 * 20 * 30


def test_a_convolution_of_a_library_counts_like_a_convolution(compiler):
    options = "window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f"
    shapes = ["p = f32[2,20,4] parameter(0)", "k = f32[3,4,5] parameter(1)"]
    plain = entry(*shapes, f"ROOT r = f32[2,20,5] convolution(p, k), {options}")
    called = entry(
        *shapes,
        f'c = (f32[2,20,5], u8[9]) custom-call(p, k), {options}, custom_call_target="__cudnn$convForward"',
        "ROOT r = f32[2,20,5] get-tuple-element(c), index=0",
    )
    first, second = (flops_of(parse(data, compiler=compiler).proto) for data in (plain, called))
    assert first == second == 2 * 2 * 4 * 5 * (3 * 20 - 2)


def test_it_names_the_custom_calls_that_it_does_not_know(compiler):
    data = entry(
        "p = f32[8] parameter(0)",
        'a = f32[8] custom-call(p), custom_call_target="one"',
        'b = f32[8] custom-call(a), custom_call_target="two"',
        'ROOT c = f32[8] custom-call(b), custom_call_target="one"',
    )
    assert FlopCounter(decode_module(parse(data, compiler=compiler).proto)).unknown == {"one": 2, "two": 1}


def test_operations_that_do_not_fit_in_64_bits_are_refused(compiler):
    data = entry(
        "p = s8[4000000,4000000] parameter(0)",
        "ROOT r = s8[4000000,4000000] dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    )
    with pytest.raises(InputError) as caught:
        flops_of(parse(data, compiler=compiler).proto)
    assert caught.value.code == "size-overflow"


def test_sizes_that_do_not_fit_in_64_bits_are_refused(compiler):
    module = decode_module(parse(entry("ROOT p = f32[8] parameter(0)"), compiler=compiler).proto)
    module.computations[0].instructions[0].shape.dimensions[0] = 2**61  # XLA's parser does not let this pass
    with pytest.raises(InputError) as caught:
        flops_of(module.SerializeToString())
    assert caught.value.code == "size-overflow"
