"""Programs, problems and specifications that the search's tests share."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accelsim.device import Device
from accelsim.program import Program
from search.memory.problem import Problem
from tests.accelsim.programs import SMALL, random_program

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def toml_of(device: Device) -> str:
    fields = {name: value for name, value in dataclasses.asdict(device).items() if name != "sources"}
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())


def start(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "search", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        **options,
    )


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "search", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        timeout=600,
    )


@pytest.fixture
def problem_of(tmp_path: Path) -> Callable[..., Problem]:
    """Make the problem of a random program, stored where evaluators find it."""

    def make(seed: int, *, program: Program | None = None, device: Device = SMALL, **sizes: int) -> Problem:
        chosen = program or random_program(seed, **sizes)
        path = tmp_path / f"program-{seed}.npz"
        chosen.save(path)
        return Problem(chosen, device, path=path)

    return make


@pytest.fixture
def spec(tmp_path: Path) -> Callable[..., Path]:
    """Write the specification of a supervised annealing search of a random program."""

    def write(name: str = "run", **changes: Any) -> Path:
        program = tmp_path / "program.npz"
        random_program(3, steps=120, buffers=80).save(program)
        fields = {
            "kind": "memory",
            "program": str(program),
            "device": toml_of(SMALL),
            "settings": {"method": "annealing", "first_cycle": 200},
            "budget": {"evaluations": 20_000},
            "folder": str(tmp_path / name),
            "workers": 1,
        }
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**fields, **changes}))
        return path

    return write
