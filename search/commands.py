"""The command lines, callable from a shell and from other programs."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from accelsim.device import device_names, load_device
from accelsim.errors import CompilerError, InputError
from accelsim.load import load, peak_bytes, summarise
from accelsim.program import Program
from accelsim.xla import Compiler
from search import evaluate, supervised
from search.artifacts import recipe, write_artifacts
from search.engine import Budget, Progress, parse_budget, store_checkpoint
from search.executor import LocalExecutor
from search.memory.problem import Problem
from search.memory.run import run
from search.memory.settings import catalogue, parse_settings

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
CHECKPOINT_SECONDS = 2.0
REPORT_SECONDS = 1.0

METHODS = ("all-slow", "greedy", "xla-style", "annealing")
_STORED_PROGRAM = b"PK\x03\x04"  # .npz is a zip archive


def main(argv: list[str] | None = None) -> int:
    """Run one command; return the exit status: 0 done, 2 bad input, 130 interrupted."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has said on standard error what is wrong
        return int(stop.code or 0)
    try:
        status: int = arguments.command(arguments)
        return status
    except InputError as error:
        print(_one_line(_where(error) + error.message), file=sys.stderr)
        return BAD_INPUT
    except CompilerError as error:
        print(_one_line(f"XLA ({error.kind}): {error.message}"), file=sys.stderr)
        return BAD_INPUT
    except OSError as error:
        print(_one_line(f"{error.filename or 'output'}: {error.strerror or error}"), file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED


def _one_line(message: str) -> str:
    return "error: " + " ".join(message.split())


def _where(error: InputError) -> str:
    if error.line is None or f"line {error.line}" in error.message:
        return ""
    return f"line {error.line}" + (f", column {error.column}: " if error.column is not None else ": ")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m search", description="Look for something better.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    memory = commands.add_parser("memory", help="search for a memory mapping of an HLO module")
    memory.add_argument("file", type=Path, metavar="FILE", help="HLO in any form, or a stored program (.npz)")
    memory.add_argument("--device", default="tpu-v4", help=f"{', '.join(device_names())}, or the path of a .toml file")
    memory.add_argument("--capacity", type=int, metavar="BYTES", help="fast memory in place of the chip's")
    memory.add_argument("--method", default="annealing", choices=METHODS)
    memory.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=_settings_help())
    memory.add_argument("--evaluations", type=int, metavar="N", help="stop after this many mappings")
    memory.add_argument("--seconds", type=float, metavar="S", help="stop after this time")
    memory.add_argument("--target", type=int, metavar="PS", help="stop at this latency in picoseconds")
    memory.add_argument("--seed", type=int, default=0)
    memory.add_argument("--out", type=Path, metavar="DIR", required=True, help="folder for the artifacts")
    memory.add_argument("--resume", type=Path, metavar="CHECKPOINT", help="continue from a checkpoint")
    memory.add_argument("--workers", type=int, metavar="N", help="processes that evaluate; default: one a core")
    memory.set_defaults(command=_memory)

    inspect = commands.add_parser("inspect", help="summarise an HLO module as JSON")
    inspect.add_argument("file", type=Path, metavar="FILE")
    inspect.set_defaults(command=_inspect)

    supervise = commands.add_parser("run", help="run a search under a supervisor, JSON lines on standard output")
    supervise.add_argument("spec", metavar="SPEC.json")
    supervise.set_defaults(command=lambda arguments: supervised.main(arguments.spec))

    evaluator = commands.add_parser("evaluate", help="evaluate requests from standard input, a JSON line each")
    evaluator.set_defaults(command=lambda arguments: evaluate.main())
    return parser


def _settings_help() -> str:
    methods = (
        f"{entry['method']}: {', '.join(name for name in entry['defaults'] if name != 'method') or 'none'}"
        for entry in catalogue()
    )
    return f"a setting of the method ({'; '.join(methods)})"


def _inspect(arguments: argparse.Namespace) -> int:
    data = arguments.file.read_bytes()
    if data.startswith(_STORED_PROGRAM):
        summary = _summary(Program.load(arguments.file))
    else:
        with Compiler(children=1) as compiler:
            summary = summarise(load(data, compiler=compiler))
    print(json.dumps(summary))
    return DONE


def _summary(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "format": "program",
        "steps": program.steps,
        "accesses": program.accesses,
        "buffers": program.buffers,
        "peak_bytes": peak_bytes(program),
        "notes": list(program.notes),
    }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The user's file, loaded."""

    name: str
    sha256: str
    program: Program
    module: bytes | None  # the scheduled module; a stored program has none


def _load(path: Path, compiler: Compiler) -> _Source:
    data = path.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if data.startswith(_STORED_PROGRAM):
        return _Source(name=path.name, sha256=sha256, program=Program.load(path), module=None)
    loaded = load(data, compiler=compiler)
    for note in loaded.notes:
        print(f"note: {note}", file=sys.stderr)
    return _Source(name=path.name, sha256=sha256, program=loaded.program, module=loaded.scheduled.proto)


def _memory(arguments: argparse.Namespace) -> int:
    settings = parse_settings({"method": arguments.method, **_settings(arguments.set)})
    budget = _budget(arguments)
    if not 0 <= arguments.seed < 2**63:
        raise InputError("--seed is not a whole number from 0 to 2^63 - 1", code="seed")
    if arguments.workers is not None and arguments.workers < 1:
        raise InputError("--workers is not at least 1", code="workers")
    chip = Path(arguments.device) if arguments.device.endswith(".toml") else arguments.device
    device = load_device(chip, capacity_bytes=arguments.capacity)
    resume = arguments.resume.read_bytes() if arguments.resume else None
    with Compiler(children=1) as compiler, tempfile.TemporaryDirectory(prefix="graphsmith-search-") as scratch:
        source = _load(arguments.file, compiler)
        arguments.out.mkdir(parents=True, exist_ok=True)
        path = Path(scratch) / "program.npz"
        source.program.save(path)
        problem = Problem(source.program, device, path=path)
        if problem.fits:
            print("everything fits in fast memory: nothing to search; try a smaller --capacity", file=sys.stderr)
        executor = LocalExecutor(workers=arguments.workers)
        interrupted = False
        try:
            with _interrupts() as pressed:
                searching = run(problem, settings, budget, seed=arguments.seed, resume=resume, executor=executor)
                progress = _follow(searching, arguments.out, pressed)
                interrupted = bool(pressed) and not progress.finished
        finally:
            executor.close()
        about = recipe(
            problem, settings, budget, progress, seed=arguments.seed, source=source.name, sha256=source.sha256
        )
        artifacts = write_artifacts(
            arguments.out, problem, progress.solution, recipe=about, module=source.module, compiler=compiler
        )
    result = {
        "method": settings.method,
        "seed": arguments.seed,
        "evaluations": progress.evaluations,
        "seconds": round(progress.seconds, 3),
        "latency_ps": progress.best,
        "all_slow_ps": progress.baselines["all_slow"],
        "lower_bound_ps": progress.bound,
        "baselines": progress.baselines,
        "artifacts": [dataclasses.asdict(artifact) for artifact in artifacts],
    }
    result |= {"reason": progress.finished or "interrupted", "step": progress.step}
    print(json.dumps(result))
    return INTERRUPTED if interrupted else DONE


def _settings(pairs: list[str]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: give NAME=VALUE", code="settings")
        settings[name] = value
    return settings


def _budget(arguments: argparse.Namespace) -> Budget:
    budget = {name: getattr(arguments, name) for name in ("evaluations", "seconds", "target")}
    if arguments.method != "annealing" and budget["evaluations"] is None and budget["seconds"] is None:
        return Budget(target=budget["target"])  # these end by themselves
    return parse_budget(budget)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Collect Ctrl-C instead of raising it: the search stops where a checkpoint is possible."""
    pressed: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if pressed:
            raise KeyboardInterrupt  # asked twice: at once
        pressed.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _follow(searching: Iterator[Progress], folder: Path, pressed: list[int]) -> Progress:
    """Follow a search to its end or to Ctrl-C, report it, store checkpoints; return the last progress."""
    reported = -REPORT_SECONDS
    stored = time.monotonic()
    for progress in searching:
        now = time.monotonic()
        last = progress.finished or pressed
        if progress.improved or last or now - reported >= REPORT_SECONDS:
            reported = now
            speedup = progress.baselines["all_slow"] / max(1, progress.best)
            print(
                f"{progress.seconds:8.1f} s  {progress.evaluations:>10,} evaluations  "
                f"best {progress.best / 1e6:,.3f} us  ({speedup:.3f} x all-slow)",
                file=sys.stderr,
            )
        if last or now - stored >= CHECKPOINT_SECONDS:
            stored = now
            store_checkpoint(folder, progress.checkpoint(), step=progress.step)
        if last:
            return progress
    raise RuntimeError("the search ended without saying why")
