"""The one contract that all searches keep."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from accelsim.errors import InputError

CHECKPOINT_VERSION = 1
CHECKPOINTS_KEPT = 2

_MAGIC = b"graphsmith-checkpoint"


MOST_OF_A_BUDGET = 2**53  # what every reader of JSON holds exactly; infinity is above it


class Budget(BaseModel):
    """When to stop. Seconds decide only when, never what is done."""

    model_config = ConfigDict(extra="forbid")

    evaluations: int | None = Field(default=None, ge=1, description="Stop after this many evaluations")
    seconds: float | None = Field(default=None, gt=0, description="Stop after this many seconds")
    target: int | None = Field(default=None, ge=0, description="Stop when the best value is this low")


def parse_budget(data: object) -> Budget:
    """Read a budget from a JSON object.

    Raises:
        InputError: a field is unknown or out of range, or nothing would ever end the search.
    """
    try:
        budget = Budget.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise InputError(f"budget: {place}: {first['msg']}", code="budget") from error
    for name, value in budget.model_dump().items():
        if value is not None and value > MOST_OF_A_BUDGET:
            raise InputError(f"budget: {name} must be at most {MOST_OF_A_BUDGET}", code="budget")
    if budget.evaluations is None and budget.seconds is None:
        raise InputError("budget: give evaluations or seconds; a target alone may never be reached", code="budget")
    return budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a search is. `seconds` includes the attempts before a resume."""

    step: int
    evaluations: int
    seconds: float
    best: int  # picoseconds for memory mapping; lower is better
    baselines: dict[str, int]
    bound: int
    metrics: dict[str, float] = field(default_factory=dict)
    finished: str | None = None  # why the search ended: evaluations, seconds, target, complete
    improved: bool = False  # the best solution changed since the last progress
    solution: Any = None  # the best solution so far, e.g. accelsim.mapping.Mapping
    checkpoint: Callable[[], bytes] = lambda: b""


class Executor(Protocol):
    """Runs evaluations somewhere; results come back in the order of submission."""

    def submit(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Evaluate JSON requests and yield their JSON results in order."""
        ...

    def close(self) -> None: ...


class Meter:
    """Count what a search has used of its budget, earlier attempts included."""

    def __init__(self, budget: Budget, *, evaluations: int = 0, seconds: float = 0.0) -> None:
        self.budget = budget
        self.evaluations = evaluations
        self._earlier = seconds
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return self._earlier + time.monotonic() - self._started

    @property
    def evaluations_left(self) -> int | None:
        """How many evaluations the budget still allows, None without a limit."""
        limit = self.budget.evaluations
        return None if limit is None else max(0, limit - self.evaluations)

    def reason(self, best: int) -> str | None:
        """Say why the search must stop now, None if it may go on."""
        if self.budget.target is not None and best <= self.budget.target:
            return "target"
        if self.evaluations_left == 0:
            return "evaluations"
        if self.budget.seconds is not None and self.seconds >= self.budget.seconds:
            return "seconds"
        return None


def pack_checkpoint(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return a line with version and SHA-256, then an ``.npz`` of a JSON header and arrays (no pickles)."""
    stream = io.BytesIO()
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    np.savez_compressed(stream, allow_pickle=False, header=text, **arrays)
    body = stream.getvalue()
    return b"%s %d %s\n" % (_MAGIC, CHECKPOINT_VERSION, hashlib.sha256(body).hexdigest().encode()) + body


def unpack_checkpoint(data: bytes, *, identity: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read what `pack_checkpoint` made.

    Args:
        identity: what the header's ``identity`` must be: a checkpoint of another search is refused.

    Raises:
        InputError: ``checkpoint``; the bytes are damaged, or of another version or search.
    """
    line, _, body = data.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 3 or words[0] != _MAGIC:
        raise InputError("this is not a checkpoint", code="checkpoint")
    if words[1] != b"%d" % CHECKPOINT_VERSION:
        raise InputError("the checkpoint was written by another version; start the search again", code="checkpoint")
    if hashlib.sha256(body).hexdigest().encode() != words[2]:
        raise InputError("the checkpoint is damaged: its checksum is wrong", code="checkpoint")
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            header = json.loads(archive["header"].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != "header"}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"the checkpoint is damaged: {error}", code="checkpoint") from error
    if not isinstance(header, dict) or header.get("identity") != identity:
        raise InputError(
            "the checkpoint belongs to another search: program, device, settings or seed differ", code="checkpoint"
        )
    return header, arrays


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is there as a whole or not at all, also after a power failure.

    Raises:
        OSError: among others, no space is left; what was at `path` before is still there.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def store_checkpoint(folder: Path, data: bytes, *, step: int) -> Path:
    """Write ``checkpoint-STEP.bin`` and delete all but the newest two.

    Raises:
        OSError: it could not be written; the checkpoints that were there are kept.
    """
    path = folder / f"checkpoint-{step:09d}.bin"
    write_whole(path, data)
    for old in sorted(folder.glob("checkpoint-*.bin"))[:-CHECKPOINTS_KEPT]:
        if old != path:
            old.unlink(missing_ok=True)
    return path
