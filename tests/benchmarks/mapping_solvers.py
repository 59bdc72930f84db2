"""Every memory-mapping solver on every committed HLO file, under memory pressure."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

TITLE = "Memory-mapping solvers on the committed HLO files (tpu-v5e)"
LONG = True

FILES = Path("tests/data/hlo")
DEVICE = "tpu-v5e"
PRESSURE = 4  # fast memory is the peak of live bytes divided by this
EVALUATIONS = 20_000
RUNS = [("all-slow", 0), ("greedy", 0), ("xla-style", 0), *(("annealing", seed) for seed in range(5))]


def rows(done: list[dict]) -> Iterator[dict]:
    finished = {(row["file"], row["method"], row["seed"]) for row in done}
    for path in sorted(FILES.glob("*.hlo.gz")):
        wanted = [run for run in RUNS if (path.name, *run) not in finished]
        capacity = capacity_for(path) if wanted else 0
        for method, seed in wanted:
            result = search(path, capacity, method, seed)
            yield {
                "file": path.name,
                "capacity_bytes": capacity,
                "method": method,
                "seed": seed,
                "evaluations": result["evaluations"],
                "seconds": round(result["seconds"], 2),
                "latency_us": result["latency_ps"] / 1e6,
                "all_slow_us": result["all_slow_ps"] / 1e6,
                "bound_us": result["lower_bound_ps"] / 1e6,
                "speedup_over_all_slow": round(result["all_slow_ps"] / result["latency_ps"], 4),
            }


def capacity_for(path: Path) -> int:
    summary = json.loads(graphsmith("inspect", str(path)))
    return max(4096, summary["peak_bytes"] // PRESSURE // 4096 * 4096)


def search(path: Path, capacity: int, method: str, seed: int) -> dict:
    with tempfile.TemporaryDirectory() as out:
        options = ["--device", DEVICE, "--capacity", str(capacity), "--method", method, "--seed", str(seed)]
        output = graphsmith("memory", str(path), *options, "--evaluations", str(EVALUATIONS), "--out", out)
    return json.loads(output.splitlines()[-1])


def graphsmith(*arguments: str) -> str:
    command = [sys.executable, "-m", "search", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
