"""The files that a search leaves behind."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from importlib.metadata import version
from pathlib import Path
from typing import Any

from accelsim.mapping import Mapping
from accelsim.writers.csv import mapping_csv
from accelsim.writers.hlo import annotate
from accelsim.writers.json import mapping_document
from accelsim.writers.svg import mapping_svg
from accelsim.xla import Compiler
from search.engine import Budget, Progress, write_whole
from search.memory.problem import Problem
from search.memory.settings import Settings

VERSIONS = ("numpy", "numba")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A file of a result."""

    name: str
    path: str
    bytes: int
    sha256: str


def recipe(
    problem: Problem, settings: Settings, budget: Budget, progress: Progress, *, seed: int, source: str, sha256: str
) -> dict[str, Any]:
    """Say how a mapping was found, so that it can be found again: no times and no dates, the same for the same search.

    Args:
        source: name of the input file; sha256: of its bytes.
    """
    chosen = settings.model_dump()
    words = ["python", "-m", "search", "memory", source, "--device", problem.device.name]
    words += ["--capacity", str(problem.device.capacity_bytes), "--method", settings.method]
    for name, value in chosen.items():
        if name != "method":
            words += ["--set", f"{name}={value}"]
    words += ["--evaluations", str(progress.evaluations), "--seed", str(seed)]
    return {
        "input": {"name": source, "sha256": sha256},
        "device": problem.device.name,
        "capacity_bytes": problem.device.capacity_bytes,
        "settings": chosen,
        "seed": seed,
        "budget": budget.model_dump(),
        "step": progress.step,
        "evaluations": progress.evaluations,
        "baselines": progress.baselines,
        "lower_bound_ps": progress.bound,
        "versions": {name: version(name) for name in VERSIONS},
        "command": shlex.join(words),
    }


def write_artifacts(
    folder: Path,
    problem: Problem,
    mapping: Mapping,
    *,
    recipe: dict[str, Any],
    module: bytes | None,
    compiler: Compiler,
) -> list[Artifact]:
    """Write the mapping as JSON, CSV, SVG and, if the scheduled module is given, as annotated HLO.

    Raises:
        OSError: a file could not be written.
    """
    program, device = problem.program, problem.device
    document = mapping_document(program, device, mapping, recipe=recipe)
    files = {
        "mapping.json": json.dumps(document, indent=1) + "\n",
        "mapping.csv": mapping_csv(program, mapping),
        "memory-map.svg": mapping_svg(program, device, mapping),
    }
    if module is not None:
        annotated = annotate(module, program=program, device=device, mapping=mapping)
        files["module.hlo"] = compiler.call("parse_proto", annotated)[1][1].decode()
    artifacts = []
    for name, text in files.items():
        data = text.encode()
        write_whole(folder / name, data)
        digest = hashlib.sha256(data).hexdigest()
        artifacts.append(Artifact(name=name, path=str(folder / name), bytes=len(data), sha256=digest))
    return artifacts
