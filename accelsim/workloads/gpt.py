"""A small GPT: its prefill step and its training step with Adam, as HLO text.

usage: JAX_PLATFORMS=cpu python -m accelsim.workloads.gpt FOLDER
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

LAYERS, WIDTH, HEADS, POSITIONS, BATCH, VOCABULARY = 4, 256, 4, 256, 4, 2048

Parameters = dict[str, Any]


def parameters() -> Parameters:
    """Return the shapes of the parameters, all `float32`."""

    def shape(*dimensions: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dimensions, jnp.float32)

    block = {
        "attention_scale": shape(WIDTH),
        "query_key_value": shape(WIDTH, 3 * WIDTH),
        "projection": shape(WIDTH, WIDTH),
        "feed_forward_scale": shape(WIDTH),
        "up": shape(WIDTH, 4 * WIDTH),
        "down": shape(4 * WIDTH, WIDTH),
    }
    return {
        "embedding": shape(VOCABULARY, WIDTH),
        "position": shape(POSITIONS, WIDTH),
        "blocks": [block] * LAYERS,
        "scale": shape(WIDTH),
    }


def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def attend(block: Parameters, x: jax.Array) -> jax.Array:
    """Causal self-attention, `[B, S, WIDTH]` -> the same."""
    batch, positions, _ = x.shape
    parts = jnp.split(x @ block["query_key_value"], 3, axis=-1)
    query, key, value = (part.reshape(batch, positions, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3) for part in parts)
    score = query @ key.transpose(0, 1, 3, 2) / jnp.sqrt(WIDTH // HEADS)
    seen = jnp.tril(jnp.ones((positions, positions), bool))
    weight = jax.nn.softmax(jnp.where(seen, score, -1e9))
    return (weight @ value).transpose(0, 2, 1, 3).reshape(batch, positions, WIDTH) @ block["projection"]


def logits(model: Parameters, tokens: jax.Array) -> jax.Array:
    """`[B, S]` token numbers -> `[B, S, VOCABULARY]`."""
    x = model["embedding"][tokens] + model["position"][: tokens.shape[1]]
    for block in model["blocks"]:
        x = x + attend(block, normalise(x, block["attention_scale"]))
        x = x + jax.nn.gelu(normalise(x, block["feed_forward_scale"]) @ block["up"]) @ block["down"]
    return normalise(x, model["scale"]) @ model["embedding"].T


def prefill(model: Parameters, tokens: jax.Array) -> jax.Array:
    return logits(model, tokens)[:, -1]


def loss(model: Parameters, tokens: jax.Array) -> jax.Array:
    predicted = jax.nn.log_softmax(logits(model, tokens[:, :-1]))
    return -jnp.take_along_axis(predicted, tokens[:, 1:, None], -1).mean()


def train_step(model: Parameters, first: Parameters, second: Parameters, tokens: jax.Array) -> tuple[Any, ...]:
    """One step of AdamW without bias correction."""
    value, gradient = jax.value_and_grad(loss)(model, tokens)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradient)
    model = jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), model, first, second)
    return model, first, second, value


def hlo() -> dict[str, str]:
    """Return the HLO text of each workload by name."""
    model = parameters()
    tokens = jax.ShapeDtypeStruct((BATCH, POSITIONS), jnp.int32)
    more = jax.ShapeDtypeStruct((BATCH, POSITIONS + 1), jnp.int32)
    step = jax.jit(train_step, donate_argnums=(0, 1, 2))
    return {
        "gpt_prefill": jax.jit(prefill).lower(model, tokens).as_text("hlo"),
        "gpt_train_step": step.lower(model, model, model, more).as_text("hlo"),
    }


if __name__ == "__main__":
    for name, text in hlo().items():
        (Path(sys.argv[1]) / f"{name}.hlo.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
