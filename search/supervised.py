"""``python -m search run SPEC.json``: a search under a supervisor. JSON lines out, JSON lines in."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accelsim.device import Device, load_device, parse_device
from accelsim.errors import InputError
from accelsim.mapping import COLUMNS
from accelsim.program import Program
from accelsim.xla import Compiler
from search.artifacts import recipe, write_artifacts
from search.engine import Executor, Progress, parse_budget, store_checkpoint
from search.executor import Cancelled, LocalExecutor, SupervisedExecutor
from search.memory.problem import Problem
from search.memory.run import run
from search.memory.settings import Annealing, parse_settings

DONE, BUG, BAD_INPUT, ORPHANED = 0, 1, 2, 3
PROGRESS_SECONDS = 0.1
BEST_SECONDS = 0.25


class Spec(BaseModel):
    """What the supervisor wants to be searched."""

    model_config = ConfigDict(extra="forbid")

    kind: str = Field(pattern="^memory$")
    program: Path  # a stored program
    module: Path | None = None  # its scheduled HloModuleProto
    source: str = "program"  # name of the user's file, for the recipe
    sha256: str | None = None  # of the user's file; without it, of the stored program
    device: str  # a name, or TOML
    capacity: int | None = None
    settings: dict[str, Any]
    budget: dict[str, Any]
    seed: int = Field(default=0, ge=0, lt=2**63)
    checkpoint: Path | None = None
    folder: Path
    executor: str = Field(default="local", pattern="^(local|supervisor)$")
    workers: int | None = Field(default=None, ge=1)
    checkpoint_seconds: float = Field(default=2.0, ge=0)


class _Channel:
    """The supervisor: messages to it, and what it said last."""

    def __init__(self, output: TextIO, source: TextIO) -> None:
        self.stop = False
        self.gone = False
        self.executor = SupervisedExecutor(send=self.send)
        self._output = output
        self._lock = threading.Lock()
        self._source = source
        threading.Thread(target=self._listen, name="supervisor", daemon=True).start()

    def send(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")) + "\n"
        with self._lock:
            try:
                self._output.write(line)
                self._output.flush()
            except BrokenPipeError:
                self.gone = True

    def ask_to_stop(self) -> None:
        self.stop = True
        self.executor.answer(None)

    def _listen(self) -> None:
        for line in self._source:
            message = json.loads(line)
            if message["type"] == "stop":
                self.ask_to_stop()
            elif message["type"] == "evaluated":
                self.executor.answer(message)
        self.gone = True
        self.executor.answer(None)


def main(path: str) -> int:
    """Run the search that the file describes; return the exit status."""
    channel = _Channel(sys.stdout, sys.stdin)
    signal.signal(signal.SIGTERM, lambda *_: channel.ask_to_stop())
    signal.signal(signal.SIGINT, lambda *_: channel.ask_to_stop())
    try:
        return _Run(_read(path), channel).main()
    except InputError as error:
        channel.send({"type": "error", "code": error.code, "message": error.message})
        return BAD_INPUT
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        code = "disk-full" if full else "storage"
        hint = "; the last checkpoint is kept" if full else ""
        channel.send({"type": "error", "code": code, "message": f"{error.strerror}{hint}"})
    except Exception as error:
        traceback.print_exc()
        channel.send({"type": "error", "code": "bug", "message": f"{type(error).__name__}: {error}"})
    return BUG


def _read(path: str) -> Spec:
    try:
        return Spec.model_validate_json(Path(path).read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"specification: {place}: {first['msg']}", code="specification") from error


def device_of(text: str, *, capacity: int | None) -> Device:
    """Read a device given by name or as TOML."""
    if "\n" in text or "=" in text:
        return parse_device(text, capacity_bytes=capacity)
    return load_device(text, capacity_bytes=capacity)


class _Run:
    def __init__(self, spec: Spec, channel: _Channel) -> None:
        self.spec = spec
        self.channel = channel
        spec.folder.mkdir(parents=True, exist_ok=True)
        self.settings = parse_settings(spec.settings)
        self.budget = parse_budget(spec.budget)
        device = device_of(spec.device, capacity=spec.capacity)
        self.problem = Problem(Program.load(spec.program), device, path=spec.program)
        self.executor: Executor = channel.executor
        if spec.executor == "local":
            self.executor = LocalExecutor(workers=spec.workers)
        self.started = False
        self.stored = -1  # step of the last checkpoint
        self.last: dict[str, float] = {"progress": -1e9, "best": -1e9, "checkpoint": time.monotonic()}
        self.unsent: Progress | None = None  # a best solution that was held back

    def main(self) -> int:
        resume = self.spec.checkpoint.read_bytes() if self.spec.checkpoint else None
        searching = run(
            self.problem, self.settings, self.budget, seed=self.spec.seed, resume=resume, executor=self.executor
        )
        progress: Progress | None = None
        try:
            for progress in searching:
                self._report(progress)
                if progress.finished or self.channel.stop or self.channel.gone:
                    break
        except Cancelled:
            pass  # the round under way is lost; the last progress stands
        finally:
            self.executor.close()
        if progress is None:
            return ORPHANED
        if self.stored != progress.step:
            self._checkpoint(progress)
        if self.channel.gone and not progress.finished:
            return ORPHANED
        self._finish(progress)
        return DONE

    def _report(self, progress: Progress) -> None:
        if not self.started:
            self.started = True
            # A resumed search asks the same questions under the same numbers as the one that was cut off.
            chains = self.settings.chains if isinstance(self.settings, Annealing) else 1
            self.channel.executor.skip_to(progress.step * chains)
            about = {"baselines": progress.baselines, "bound": progress.bound, "fits": self.problem.fits}
            self.channel.send({"type": "started", **about})
        if progress.improved:
            self.unsent = progress
        if self._due("progress", PROGRESS_SECONDS, now=bool(progress.finished)):
            self.channel.send(
                {
                    "type": "progress",
                    "step": progress.step,
                    "evaluations": progress.evaluations,
                    "seconds": round(progress.seconds, 3),
                    "best": progress.best,
                    "metrics": progress.metrics,
                }
            )
        if self.unsent is not None and self._due("best", BEST_SECONDS, now=bool(progress.finished)):
            self._send_best(self.unsent)
        if not progress.finished and self._due("checkpoint", self.spec.checkpoint_seconds):
            self._checkpoint(progress)

    def _due(self, what: str, seconds: float, *, now: bool = False) -> bool:
        if not now and time.monotonic() - self.last[what] < seconds:
            return False
        self.last[what] = time.monotonic()
        return True

    def _send_best(self, progress: Progress) -> None:
        self.unsent = None
        columns = {name: getattr(progress.solution, name).tolist() for name in COLUMNS}
        self.channel.send(
            {
                "type": "best",
                "step": progress.step,
                "evaluations": progress.evaluations,
                "latency_ps": progress.best,
                "map": columns,
            }
        )

    def _checkpoint(self, progress: Progress) -> None:
        data = progress.checkpoint()
        path = store_checkpoint(self.spec.folder, data, step=progress.step)
        self.stored = progress.step
        self.channel.send(
            {
                "type": "checkpoint",
                "path": str(path),
                "step": progress.step,
                "evaluations": progress.evaluations,
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )

    def _finish(self, progress: Progress) -> None:
        if self.unsent is not None:
            self._send_best(self.unsent)
        spec = self.spec
        sha256 = spec.sha256 or hashlib.sha256(spec.program.read_bytes()).hexdigest()
        about = recipe(
            self.problem, self.settings, self.budget, progress, seed=spec.seed, source=spec.source, sha256=sha256
        )
        module = spec.module.read_bytes() if spec.module else None
        with Compiler(children=1) as compiler:
            artifacts = write_artifacts(
                spec.folder, self.problem, progress.solution, recipe=about, module=module, compiler=compiler
            )
        self.channel.send(
            {
                "type": "finished",
                "reason": progress.finished or "stopped",
                "step": progress.step,
                "evaluations": progress.evaluations,
                "seconds": round(progress.seconds, 3),
                "latency_ps": progress.best,
                "artifacts": [dataclasses.asdict(artifact) for artifact in artifacts],
            }
        )
