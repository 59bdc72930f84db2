"""The program of a child process that prepares and prices modules: numba and the compilers stay out of the server.

python -m webapp.graphs.child prepare SPEC.json     make all files of one module, then `result.json` beside them
python -m webapp.graphs.child price                 answer JSON lines on standard input until it ends
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

from accelsim.bound import fits_whole
from accelsim.device import Device, load_device
from accelsim.document import graph_document
from accelsim.errors import CompilerError, InputError
from accelsim.load import load, peak_bytes
from accelsim.program import Program
from accelsim.xla import Compiler
from search.memory.greedy import greedy
from search.memory.problem import Problem

DEFAULT_DEVICE = "tpu-v4"


def prepare(spec: dict[str, Any]) -> dict[str, Any]:
    """Load a module, write its files into the folder, and say what it is."""
    folder = Path(spec["folder"])
    with Compiler(children=1) as compiler:
        loaded = load(Path(spec["upload"]).read_bytes(), compiler=compiler, limit_bytes=spec["limit_bytes"])
    program = loaded.program
    (folder / "source.pb").write_bytes(loaded.source.proto)
    (folder / "scheduled.pb").write_bytes(loaded.scheduled.proto)
    program.save(folder / "program.npz")
    _write(folder / "source.json.gz", graph_document(loaded.source.proto))
    _write(folder / "scheduled.json.gz", graph_document(loaded.scheduled.proto))
    _write(folder / "program.json.gz", program_document(program))
    device = load_device(spec["device"] or DEFAULT_DEVICE)
    capacity = spec["capacity"] or suggest_capacity(program, device)
    return {
        "format": loaded.source.format,
        "notes": list(loaded.notes),
        "instructions": loaded.source.instructions,
        "steps": program.steps,
        "buffers": program.buffers,
        "peak_bytes": peak_bytes(program),
        "schedule_source": loaded.scheduled.source,
        "suggested_device": device.name,
        "suggested_capacity": capacity,
        "files": [
            *("source.pb", "scheduled.pb", "program.npz"),
            *("source.json.gz", "scheduled.json.gz", "program.json.gz"),
        ],
    }


def _write(path: Path, document: dict[str, Any]) -> None:
    # Without a time inside, the same document is the same file.
    path.write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 6, mtime=0))


def program_document(program: Program) -> dict[str, Any]:
    """Describe steps and buffers as columns, for the memory map."""
    return {
        "name": program.name,
        "steps": {
            "name": list(program.step_name),
            "opcode": list(program.step_opcode),
            "region": program.step_region.tolist(),
            "repeat": program.step_repeat.tolist(),
            "computation": list(program.step_computation),
        },
        "buffers": {
            "name": list(program.buffer_name),
            "size": program.buffer_size.tolist(),
            "start": program.buffer_start.tolist(),
            "end": program.buffer_end.tolist(),
            "input": program.buffer_input.tolist(),
            "output": program.buffer_output.tolist(),
        },
    }


def suggest_capacity(program: Program, device: Device) -> int:
    """Find a fast memory that does not hold everything: the device's own, or half of the live bytes' peak, or less."""
    unit = device.alignment_bytes
    capacity = device.capacity_bytes
    while capacity > unit and fits_whole(program, device.with_capacity(capacity)):
        capacity = max(unit, min(capacity, peak_bytes(program)) // 2 // unit * unit)
    return capacity


def price(request: dict[str, Any]) -> dict[str, Any]:
    """Say what a stored program costs on a device before any search."""
    path = Path(request["program"])
    program = Program.load(path)
    device = load_device(request["device"], capacity_bytes=request["capacity"])
    problem = Problem(program, device, path=path)
    board = problem.board()
    greedy(problem, board)
    return {
        "fits": problem.fits,
        "all_slow_ps": problem.all_slow_ps,
        "lower_bound_ps": problem.bound,
        "greedy_ps": problem.simulator.latency(problem.mapping_of(board)),
        "capacity_bytes": device.capacity_bytes,
        "peak_bytes": peak_bytes(program),
        "suggested_capacity": suggest_capacity(program, device),
    }


def serve() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        try:
            answer = {"result": price(json.loads(line))}
        except InputError as error:
            answer = {"error": {"code": error.code, "message": error.message}}
        print(json.dumps(answer), flush=True)


def main(arguments: list[str]) -> int:
    """Do what the command line says."""
    if arguments[0] == "price":
        serve()
        return 0
    spec = json.loads(Path(arguments[1]).read_text())
    try:
        result = prepare(spec)
    except InputError as error:
        result = {"error": {"code": error.code, "message": error.message, "line": error.line, "column": error.column}}
    except CompilerError as error:
        result = {"error": {"code": f"compiler-{error.kind}", "message": error.message}}
    (Path(spec["folder"]) / "result.json").write_text(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
