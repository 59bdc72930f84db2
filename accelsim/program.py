"""A scheduled program as numpy columns: what the simulator and the solvers work on."""

from __future__ import annotations

import dataclasses
import io
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.errors import InputError

FORMAT_VERSION = 1

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """T scheduled steps, K accesses in step order, N buffers, V values.

    A *buffer* is a group of HLO values that must share storage (XLA's HloBuffer): its members are forwarded
    (tuple, get-tuple-element, bitcast), updated in place, or carried by a loop. A *value* is one HLO position.

    Time is the step number. Live ranges and windows are half-open ``[start, end)``; "before step T" is the end of
    the program. Loop bodies, called computations and branches stand in line where they are called, once;
    ``repeat`` says how often a step runs.
    """

    name: str
    step_name: tuple[str, ...]  # [T] HLO instruction name
    step_opcode: tuple[str, ...]  # [T] HLO opcode
    step_computation: tuple[str, ...]  # [T] HLO computation that holds the instruction
    step_flops: Int64  # [T] floating-point operations of one execution
    step_repeat: Int64  # [T] executions: the product of the trip counts around the step
    step_region: Int32  # [T] outermost loop or branch around the step, -1 at top level; contiguous

    access_step: Int32  # [K] ascending
    access_buffer: Int32  # [K]
    access_value: Int32  # [K] the value that is read or written
    access_bytes: Int64  # [K] bytes moved by one execution
    access_write: Bool  # [K]
    access_operand: Int32  # [K] operand number of a read, -1 for a result

    buffer_name: tuple[str, ...]  # [N] name of the defining value
    buffer_size: Int64  # [N] bytes
    buffer_start: Int32  # [N] step that defines it; 0 for inputs
    buffer_end: Int32  # [N] one past the last step that needs it; T for outputs
    buffer_input: Bool  # [N] parameter or constant: its bytes lie in slow memory before step 0
    buffer_output: Bool  # [N] its bytes must lie in slow memory after step T - 1

    value_name: tuple[str, ...]  # [V] "fusion.3", or "fusion.3{0}" for an element of a tuple
    value_buffer: Int32  # [V]
    value_start: Int32  # [V]
    value_end: Int32  # [V]

    notes: tuple[str, ...] = ()  # what was assumed or changed on the way here, for people

    @property
    def steps(self) -> int:
        return len(self.step_name)

    @property
    def accesses(self) -> int:
        return len(self.access_step)

    @property
    def buffers(self) -> int:
        return len(self.buffer_name)

    def boundaries(self) -> Bool:
        """Steps before which a copy may start or be awaited, `[T + 1]`: outside regions and at their first step."""
        inside = np.zeros(self.steps + 1, bool)
        region = self.step_region
        inside[1 : self.steps] = (region[1:] >= 0) & (region[1:] == region[:-1])
        return ~inside

    def save(self, path: Path) -> None:
        """Write the program as one compressed ``.npz`` (no pickles)."""
        columns: dict[str, NDArray[Any]] = {}
        header: dict[str, object] = {"version": FORMAT_VERSION}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, np.ndarray):
                columns[field.name] = value
            else:
                header[field.name] = value
        stream = io.BytesIO()
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez_compressed(stream, header=text, **columns)  # type: ignore[arg-type]  # the stub takes a keyword for a column
        path.write_bytes(stream.getvalue())

    @classmethod
    def load(cls, path: Path) -> Program:
        """Read what `save` wrote.

        Raises:
            InputError: the file is not a program of this version.
        """
        try:
            with np.load(path, allow_pickle=False) as archive:
                fields: dict[str, Any] = {name: archive[name] for name in archive.files}
            header = json.loads(fields.pop("header").tobytes())
            version = header.pop("version")
        except (OSError, EOFError, ValueError, KeyError, AttributeError, zipfile.BadZipFile) as error:
            raise InputError(f"{path.name} is not a stored program: {error}", code="program-format") from error
        if version != FORMAT_VERSION:
            message = f"{path.name} was stored by another version; load the module again"
            raise InputError(message, code="program-version")
        fields |= {name: tuple(value) if isinstance(value, list) else value for name, value in header.items()}
        if fields.keys() != {field.name for field in dataclasses.fields(cls)}:
            raise InputError(f"{path.name} lacks columns of a stored program", code="program-format")
        return cls(**fields)
