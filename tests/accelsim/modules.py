"""HLO texts that tests of readers share."""

from __future__ import annotations

import gzip
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "hlo"
FILES = sorted(DATA.glob("*.hlo.gz"))
RESNET = DATA / "06_resnet50_keras_jax_f32.hlo.gz"
EFFICIENTNET = DATA / "12_efficientnet_jax_lambda.hlo.gz"
MAML = DATA / "14_maml_flax_train_step.hlo.gz"

REDUCER = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

"""

LOOP = """HloModule loop

body {
  bp = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(bp), index=0
  x = f32[4] get-tuple-element(bp), index=1
  one = s32[] constant(1)
  i2 = s32[] add(i, one)
  x2 = f32[4] add(x, x)
  ROOT bt = (s32[], f32[4]) tuple(i2, x2)
}

cond {
  cp = (s32[], f32[4]) parameter(0)
  ci = s32[] get-tuple-element(cp), index=0
  n = s32[] constant(10)
  ROOT lt = pred[] compare(ci, n), direction=LT
}

ENTRY e {
  z = s32[] constant(0)
  p = f32[4] parameter(0)
  t = (s32[], f32[4]) tuple(z, p)
  w = (s32[], f32[4]) while(t), condition=cond, body=body, backend_config={"known_trip_count":{"n":"10"}}
  ROOT g = f32[4] get-tuple-element(w), index=1
}
"""

STABLEHLO = """module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""


def entry(*lines: str, header: str = "HloModule m", before: str = "") -> bytes:
    """An HLO module with one entry computation."""
    body = "\n".join(f"  {line}" for line in lines)
    return f"{header}\n\n{before}ENTRY e {{\n{body}\n}}\n".encode()


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def chain(length: int, *, scope: str = "") -> bytes:
    """`length` additions in a row; in `scope`, the op name, ``{0}`` is the number and ``{1}`` its hundred."""
    lines = ["p = f32[8] parameter(0)", "x0 = f32[8] add(p, p)"]
    for number in range(1, length):
        metadata = f', metadata={{op_name="{scope.format(number, number // 100)}"}}' if scope else ""
        lines.append(f"x{number} = f32[8] add(x{number - 1}, p){metadata}")
    lines[-1] = "ROOT " + lines[-1]
    return entry(*lines)
