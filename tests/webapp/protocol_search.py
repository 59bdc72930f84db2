"""A small search that speaks the supervised protocol: for tests of the supervisor only.

It counts a number down, one step every few milliseconds, deterministically from the seed. `settings` steer it:
`crash_at`, `hang_at`, `error_at`, `memory_at` name a step; `fan_out` sends every step's work to evaluators.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any


def say(**message: Any) -> None:
    print(json.dumps(message), flush=True)


def score(seed: int, step: int) -> int:
    """A deterministic pseudo-random number for one step."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{step}".encode()).digest()[:4])


def write(path: Path, text: str) -> str:
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)
    return hashlib.sha256(text.encode()).hexdigest()


class Commands:
    """Lines from the supervisor, without blocking."""

    def __init__(self) -> None:
        self.rest = b""

    def read(self, seconds: float) -> list[dict[str, Any]]:
        if not select.select([0], [], [], seconds)[0]:
            return []
        data = os.read(0, 1 << 16)
        if not data:
            sys.exit(3)
        *lines, self.rest = (self.rest + data).split(b"\n")
        return [json.loads(line) for line in lines]


def run(spec: dict[str, Any]) -> int:
    folder = Path(spec["folder"])
    options, seed = spec["settings"], spec["seed"]
    wanted = spec["budget"]["evaluations"]
    state = {"step": 0, "best": 10**9, "total": 0}
    if spec["checkpoint"]:
        state = json.loads(Path(spec["checkpoint"]).read_text())
    say(type="started", baselines={"all-slow": 10**9}, bound=1, fits=False)
    commands, stopped = Commands(), False
    began = saved = time.monotonic()
    answers: dict[int, int] = {}
    deaf = bool(options.get("deaf"))
    while state["step"] < wanted and not stopped:
        step = state["step"]
        for name in ("crash", "hang", "error", "memory"):
            if options.get(f"{name}_at") == step:
                marker = folder.parent.parent / f"{name}ed"
                if options.get("once") and marker.exists():
                    continue
                marker.write_text("")
                {"crash": crash, "hang": hang, "error": fail, "memory": fill}[name]()
        if options.get("fan_out"):
            say(type="evaluate", index=step, request={"seed": seed, "step": step})
            while step not in answers and not stopped:
                for command in commands.read(0.5):
                    if command["type"] == "stop":
                        stopped = True
                    else:
                        answers[command["index"]] = command["result"]["score"]
            if stopped:
                break
            value = answers.pop(step)
        else:
            value = score(seed, step)
        state["total"] = (state["total"] * 31 + value) % (2**61 - 1)
        state["step"] = step + 1
        if value < state["best"]:
            state["best"] = value
            columns = {name: [1] for name in ("buffer", "offset", "start", "ready", "end", "evict")}
            say(
                type="best",
                step=state["step"],
                evaluations=state["step"],
                latency_ps=value,
                map=columns | {"prefetched": [True]},
            )
        say(
            type="progress",
            step=state["step"],
            evaluations=state["step"],
            seconds=time.monotonic() - began,
            best=state["best"],
            metrics={"value": value},
        )
        if time.monotonic() - saved >= spec["checkpoint_seconds"]:
            saved = time.monotonic()
            save(folder, state)
        for command in commands.read(options.get("pause", 0.005)):
            stopped |= command["type"] == "stop" and not deaf
    save(folder, state)
    text = json.dumps({"step": state["step"], "best": state["best"], "total": state["total"]})
    digest = write(folder / "mapping.json", text)
    say(
        type="finished",
        reason="stopped" if stopped else "evaluations",
        step=state["step"],
        evaluations=state["step"],
        seconds=time.monotonic() - began,
        latency_ps=state["best"],
        artifacts=[{"name": "mapping.json", "path": "mapping.json", "bytes": len(text), "sha256": digest}],
    )
    return 0


def save(folder: Path, state: dict[str, Any]) -> None:
    path = folder / f"checkpoint-{state['step']}"
    digest = write(path, json.dumps(state))
    say(type="checkpoint", path=str(path), step=state["step"], evaluations=state["step"], sha256=digest)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def fail() -> None:
    say(type="error", code="cost-overflow", message="too large")
    sys.exit(2)


def fill() -> None:
    block = [bytearray(1 << 28)]
    while True:
        block.append(bytearray(1 << 28))


def evaluate() -> int:
    for line in sys.stdin:
        asked = json.loads(line)
        request = asked["request"]
        result = {"score": score(request["seed"], request["step"])}
        say(index=asked["index"], result=result)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "evaluate":
        sys.exit(evaluate())
    sys.exit(run(json.loads(Path(sys.argv[2]).read_text())))
