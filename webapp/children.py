"""Child processes that end with their parent, with limits, and without our secrets."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.conf import settings

_LIBC = ctypes.CDLL(None, use_errno=True)  # Loaded before any fork: loading takes locks.
_PR_SET_PDEATHSIG = 1
CHUNK = 1 << 16
MAX_LINE_BYTES = 256 * 1024 * 1024
_PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "NUMBA_CACHE_DIR", "PYTHONPATH")


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal_number), 0, 0, 0)


def bare_environment() -> dict[str, str]:
    """Give a child what it needs to run Python, one BLAS thread, and no secrets."""
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def tied(parent: int) -> Callable[[], None]:
    """Make a `preexec_fn` that ties the child to `parent`, also if that has died in between."""

    def prepare() -> None:
        die_with_parent()
        if os.getppid() != parent:
            os._exit(1)

    return prepare


def spawn(
    command: list[str],
    *,
    memory_bytes: int,
    tie: bool = True,
    folder: Path | None = None,
    stdin: int | None = subprocess.DEVNULL,
    stdout: int | None = subprocess.PIPE,
    stderr: int | None = subprocess.PIPE,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child in a session of its own, with a memory limit, that is killed when this process dies.

    Args:
        tie: kill it with this process. The kernel watches the calling thread, so only a main thread may ask for it;
            a child of another thread has to end by itself when its standard input does.
    """
    process = subprocess.Popen(
        command,
        cwd=folder or settings.BASE_DIR,
        env=dict(environment or bare_environment()),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=tied(os.getpid()) if tie else None,
    )
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
    return process


def kill_group(process: subprocess.Popen[bytes], *, grace: float = 0.0) -> int:
    """End a child's whole process group: SIGTERM, `grace` seconds, SIGKILL. Return its exit status."""
    if process.poll() is None and grace > 0:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
    # The leader may be gone while others of its group live; its id stays taken until it is waited for.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def describe_exit(status: int) -> str:
    """Say in words how a process ended."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


class ChildDied(Exception):
    """The child ended, hung or talked nonsense while it had a request."""


class LineChild:
    """A child that answers each JSON line with one; it is started when it is needed, and again after it died."""

    def __init__(self, command: list[str], *, memory_bytes: int, tie: bool) -> None:
        self.command = command
        self.memory_bytes = memory_bytes
        self.tie = tie
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        """Send one request and wait for its answer.

        Raises:
            ChildDied: there is no answer; the child was ended, the next call starts another.
        """
        process = self._alive()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer = json.loads(self._read_line(process, deadline=time.monotonic() + seconds))
            if not isinstance(answer, dict):
                raise ValueError("not an object")
            return answer
        except (OSError, ValueError) as error:
            self.close()
            raise ChildDied(f"its answer cannot be read: {error}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is None:
            return
        kill_group(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # A dead child's standard input may still have bytes to flush.
                    stream.close()

    def _alive(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = spawn(
                self.command, memory_bytes=self.memory_bytes, tie=self.tie, stdin=subprocess.PIPE, stderr=None
            )
        return self._process

    @staticmethod
    def _read_line(process: subprocess.Popen[bytes], *, deadline: float) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        line = bytearray()
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            if left <= 0:
                raise ChildDied("it took too long")
            if not select.select([descriptor], [], [], left)[0]:
                continue
            part = os.read(descriptor, CHUNK)
            if not part:
                raise ChildDied(f"it {describe_exit(process.wait())}")
            line += part
            if len(line) > MAX_LINE_BYTES:
                raise ChildDied("its answer is too long")
        return bytes(line)
