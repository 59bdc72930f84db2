"""XLA in child processes: bounded, limited, and allowed to die."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from accelsim.errors import CompilerError

_CHILD = Path(__file__).with_name("child.py")
# What a child may see of our environment; credentials and XLA_FLAGS (which can write files anywhere) are not in it.
_ENVIRONMENT = ("LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
# A child is replaced after that many requests, so that what XLA leaks stays bounded.
_REQUESTS_PER_CHILD = 200
_CHUNK = 1 << 20
_FATAL = re.compile(r"(?ms)^F\d{4}[^\n]*?\] (.*?)(?:^\*\*\*|\Z)")
_NO_MEMORY = re.compile(r"(?i)bad_alloc|out of memory|cannot allocate memory|resource_exhausted|pthread_create")


class _Child:
    """One process, its pipes and its private folder. Used by one thread at a time."""

    def __init__(self, *, memory_bytes: int, cpu_seconds: int, file_bytes: int, reply_bytes: int) -> None:
        self.reply_bytes = reply_bytes
        self.folder = Path(tempfile.mkdtemp(prefix="graphsmith-xla-"))
        self.requests = 0
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        environment |= {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "JAX_PLATFORMS": "cpu",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "OMP_NUM_THREADS": "1",
            # XLA:CPU splits work by the number of processors; the same module must be the same on every machine.
            "NPROC": "1",
            # An arena a thread would use up the address space on machines with many processors.
            "MALLOC_ARENA_MAX": "2",
        }
        with (self.folder / "stderr").open("ab") as errors:
            # Limits are set by the child itself: preexec_fn is not safe in a process with threads.
            self.process = subprocess.Popen(
                [sys.executable, "-I", str(_CHILD), str(memory_bytes), str(cpu_seconds), str(file_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=self.folder,
                env=environment,
                start_new_session=True,
                bufsize=0,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._into = self.process.stdin.fileno()
        self._out = self.process.stdout.fileno()
        os.set_blocking(self._into, False)
        os.set_blocking(self._out, False)

    def alive(self) -> bool:
        return self.process.poll() is None

    def call(self, request: str, payloads: tuple[bytes, ...], *, deadline: float) -> tuple[dict[str, Any], list[bytes]]:
        """Send one request and wait for its reply.

        Raises:
            TimeoutError: the deadline (`time.monotonic`) passed.
            EOFError: the process is gone.
            MemoryError: the reply is larger than what we read.
        """
        self.requests += 1
        header = json.dumps({"request": request, "sizes": [len(payload) for payload in payloads]}).encode()
        self._write(struct.pack(">I", len(header)) + header, deadline)
        for payload in payloads:
            self._write(payload, deadline)
        (size,) = struct.unpack(">I", self._read(4, deadline))
        reply = json.loads(self._read(size, deadline))
        if sum(reply["sizes"]) > self.reply_bytes:
            raise MemoryError(f"the result has {sum(reply['sizes'])} bytes, over the limit of {self.reply_bytes}")
        return reply, [self._read(size, deadline) for size in reply["sizes"]]

    def _wait(self, descriptor: int, event: int, deadline: float) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError

    def _write(self, data: bytes, deadline: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(self._into, select.POLLOUT, deadline)
            try:
                view = view[os.write(self._into, view[:_CHUNK]) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise EOFError from error

    def _read(self, size: int, deadline: float) -> bytes:
        data = bytearray()
        while len(data) < size:
            self._wait(self._out, select.POLLIN, deadline)
            try:
                part = os.read(self._out, min(_CHUNK, size - len(data)))
            except BlockingIOError:
                continue
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    def last_words(self) -> str:
        """What the process wrote on standard error during the last request."""
        with contextlib.suppress(OSError):
            with (self.folder / "stderr").open("rb") as errors:
                return errors.read(1 << 16).decode(errors="replace")
        return ""

    def end(self) -> int:
        """Kill the process group, remove the folder, and return the exit status (negative: signal)."""
        if self.alive():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        status = self.process.wait()
        self.forget()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def forget(self) -> None:
        """Close our ends of the pipes."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


class Compiler:
    """A pool of at most `children` compiler processes; safe to share between threads.

    Args:
        children: how many processes may exist at once.
        seconds: wall-clock limit of one request.
        cpu_seconds: processor time that one request may use, over all threads of the child.
        memory_bytes: address space of a child.
        file_bytes: size of the largest file that a child may write.
        reply_bytes: the largest result that is read into this process; a line of text can stand for a huge literal.
        wait_seconds: how long a request waits for a free child before it is refused as busy.
    """

    def __init__(
        self,
        *,
        children: int = 2,
        seconds: float = 120,
        cpu_seconds: int = 240,
        memory_bytes: int = 6 << 30,
        file_bytes: int = 1 << 30,
        reply_bytes: int = 512 << 20,
        wait_seconds: float = 60,
    ) -> None:
        self.children = children
        self.seconds = seconds
        self.wait_seconds = wait_seconds
        self._limits = {
            "memory_bytes": memory_bytes,
            "cpu_seconds": cpu_seconds,
            "file_bytes": file_bytes,
            "reply_bytes": reply_bytes,
        }
        self._reset()

    def _reset(self) -> None:
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.children)
        self._idle: list[_Child] = []
        self._closed = False

    def _leave_to_parent(self) -> None:
        """Start anew in a forked process: the children that it sees are its parent's."""
        for child in self._idle:
            child.forget()
            child.process.returncode = 0  # not ours to wait for
        self._reset()

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the idle children; those at work end with their request."""
        if self._owner != os.getpid():
            self._leave_to_parent()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.end()

    def call(self, request: str, *payloads: bytes, seconds: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """Run one of `child.REQUESTS` and return its header and payloads.

        Raises:
            CompilerError: XLA refused, the child died, ran over a limit, or none was free.
        """
        if self._owner != os.getpid():
            self._leave_to_parent()
        if self._closed:
            raise RuntimeError("this compiler is closed")
        if not self._slots.acquire(timeout=self.wait_seconds):
            raise CompilerError(
                f"all {self.children} compiler processes were busy for {self.wait_seconds:g} s; try again later",
                kind="busy",
            )
        try:
            return self._call(request, payloads, seconds=self.seconds if seconds is None else seconds)
        finally:
            self._slots.release()

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.alive():
                    return child
                child.end()
        return _Child(**self._limits)

    def _call(self, request: str, payloads: tuple[bytes, ...], *, seconds: float) -> tuple[dict[str, Any], list[bytes]]:
        child = self._take()
        try:
            reply, results = child.call(request, payloads, deadline=time.monotonic() + seconds)
        except TimeoutError:
            child.end()
            raise CompilerError(f"the compiler was stopped after {seconds:g} s", kind="timeout") from None
        except EOFError:
            raise self._death(child) from None
        except MemoryError as error:
            child.end()
            raise CompilerError(str(error), kind="memory") from error
        except BaseException:
            child.end()
            raise
        if not reply["ok"]:
            if reply["kind"] == "memory":
                child.end()
                raise self._out_of_memory()
            self._keep(child)
            raise CompilerError(reply["message"], kind=reply["kind"])
        self._keep(child)
        return reply, results

    def _keep(self, child: _Child) -> None:
        with self._lock:
            if not self._closed and child.requests < _REQUESTS_PER_CHILD:
                self._idle.append(child)
                return
        child.end()

    def _out_of_memory(self) -> CompilerError:
        gib = self._limits["memory_bytes"] / 2**30
        return CompilerError(f"the compiler ran out of its {gib:.3g} GiB of memory", kind="memory")

    def _death(self, child: _Child) -> CompilerError:
        """Say why a child is gone."""
        # Its pipe is closed, so it is ending by itself; only its own status tells why.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(timeout=10)
        words = child.last_words()
        status = child.end()
        if status == -signal.SIGXCPU:
            return CompilerError(
                f"the compiler used up its {self._limits['cpu_seconds']} s of processor time", kind="timeout"
            )
        fatal = _FATAL.search(words)
        if fatal is None and _NO_MEMORY.search(words):
            return self._out_of_memory()
        if fatal is not None:
            cause = " ".join(fatal[1].split())[:1000]
        elif status < 0:
            cause = f"it was ended by signal {signal.Signals(-status).name}"
        else:
            cause = " ".join(words.split())[-1000:] or f"it ended with status {status}"
        return CompilerError(f"the compiler crashed: {cause}", kind="crashed")
