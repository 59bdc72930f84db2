"""The program of a compiler child: the only place that imports jaxlib. Run by path; imports nothing of ours.

Frames on standard input and output: 4 bytes big-endian length, a JSON header, then the payloads whose sizes it lists.
Standard error is a file that the parent reads when this process dies.

usage: child.py MEMORY_BYTES CPU_SECONDS FILE_BYTES
"""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

Reply = tuple[dict[str, Any], list[bytes]]


def limit(memory_bytes: int, file_bytes: int) -> None:
    """Lower what this process may take, for good."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def allow_cpu(seconds: int) -> None:
    """Let this process use that many more seconds of processor time; SIGXCPU ends it after them."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + 1 + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def leave_with_parent() -> threading.Thread:
    """End this process, and remove its folder, as soon as the other end of standard input closes."""

    def wait() -> None:
        poll = select.poll()
        poll.register(0, 0)  # hang-up is always reported; input is left to the main thread
        poll.poll()
        shutil.rmtree(Path.cwd(), ignore_errors=True)
        os._exit(0)

    leaving = threading.Thread(target=wait, daemon=True)
    leaving.start()
    return leaving


def parse_text(text: bytes) -> Reply:
    """HLO text -> proto, and the module as XLA prints it."""
    module = _hlo.hlo_module_from_text(text.decode())
    return {}, [module.as_serialized_hlo_module_proto(), module.to_string().encode(errors="replace")]


def parse_proto(proto: bytes) -> Reply:
    """`HloModuleProto` -> the same as XLA writes it, and its text."""
    module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    return {}, [module.as_serialized_hlo_module_proto(), module.to_string().encode(errors="replace")]


def parse_stablehlo(program: bytes) -> Reply:
    """StableHLO as MLIR text, MLIR bytecode or portable artifact -> proto and text."""
    computation = _jax.mlir.mlir_module_to_xla_computation(program, use_tuple_args=False, return_tuple=False)
    return parse_proto(computation.as_serialized_hlo_module_proto())


def instruction_text(proto: bytes, name: bytes) -> Reply:
    """The line of one instruction, as XLA prints it; empty if there is no such instruction."""
    module = _hlo.HloModule.from_serialized_hlo_module_proto(proto)
    wanted = name.decode()
    for computation in module.computations():
        for instruction in computation.instructions():
            if instruction.name == wanted:
                return {}, [instruction.to_string().encode(errors="replace")]
    return {}, [b""]


def compile_until_scheduled(proto: bytes) -> Reply:
    """Compile for the CPU and return the `HloProto` that was dumped right after scheduling, and XLA's last words.

    The caller put a custom call without implementation into the module, so code generation is never reached.
    """
    client: Any = xla_client.make_cpu_client()
    options = _jax.CompileOptions()
    debug = options.executable_build_options.debug_options
    folder = Path.cwd() / "dump"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    debug.xla_dump_to = str(folder)
    debug.xla_dump_hlo_as_proto = True
    debug.xla_dump_hlo_as_text = False
    debug.xla_dump_hlo_pipeline_re = "HLO passes after scheduling"
    debug.xla_dump_hlo_pass_re = "pipeline-start"
    message = ""
    try:
        program = _jax.mlir.xla_computation_to_mlir_module(_hlo.XlaComputation(proto))
        client.compile_and_load(program, client.devices()[:1], options)
    except RuntimeError as error:
        message = str(error)
    dumps = sorted(folder.glob("*.HLO_passes_after_scheduling.*.hlo.pb"))
    payloads = [dumps[-1].read_bytes()] if dumps else []
    shutil.rmtree(folder)
    return {"message": message[:4000]}, payloads


REQUESTS: dict[str, Callable[..., Reply]] = {
    "compile_until_scheduled": compile_until_scheduled,
    "instruction_text": instruction_text,
    "parse_proto": parse_proto,
    "parse_stablehlo": parse_stablehlo,
    "parse_text": parse_text,
}


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def answer(header: dict[str, Any], payloads: list[bytes]) -> Reply:
    try:
        reply, results = REQUESTS[header["request"]](*payloads)
    except MemoryError:
        return {"ok": False, "kind": "memory", "message": "out of memory"}, []
    except (RuntimeError, ValueError) as error:
        kind = "memory" if "RESOURCE_EXHAUSTED" in str(error) else "refused"
        return {"ok": False, "kind": kind, "message": str(error)[:8000]}, []
    return {"ok": True, **reply}, results


def main() -> None:
    memory_bytes, cpu_seconds, file_bytes = map(int, sys.argv[1:])
    limit(memory_bytes, file_bytes)
    leaving = leave_with_parent()
    source = os.fdopen(0, "rb", closefd=False)
    sink = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not land between two frames
    try:
        serve(source, sink, cpu_seconds=cpu_seconds)
    except EOFError:
        leaving.join()  # ending here would cut off the removal of the folder


def serve(source: BinaryIO, sink: BinaryIO, *, cpu_seconds: int) -> None:
    """Answer requests until the input ends."""
    while True:
        (size,) = struct.unpack(">I", read_exactly(source, 4))
        header = json.loads(read_exactly(source, size))
        payloads = [read_exactly(source, size) for size in header["sizes"]]
        os.ftruncate(2, 0)
        allow_cpu(cpu_seconds)
        reply, results = answer(header, payloads)
        text = json.dumps({**reply, "sizes": [len(result) for result in results]}).encode()
        sink.write(struct.pack(">I", len(text)) + text)
        for result in results:
            sink.write(result)
        sink.flush()
        del payloads, results


if __name__ == "__main__":
    from jaxlib import _hlo, _jax, xla_client  # type: ignore[attr-defined]

    main()
