"""Where evaluations run: in this process, in a pool of local processes, or wherever a supervisor has workers."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from accelsim.errors import InputError
from search.evaluate import evaluate

RETRIES = 2

ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}


class Cancelled(Exception):
    """Nobody will answer the evaluations that are under way: stop was asked for, or the supervisor is gone."""


class InlineExecutor:
    """Evaluate here, one request after the other: for notebooks, tests, and one processor."""

    def submit(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return map(evaluate, requests)

    def close(self) -> None:
        pass


class LocalExecutor:
    """A pool of ``python -m search evaluate`` processes.

    A request whose process dies is asked again of a fresh one, at most twice. Requests are pure functions of their
    JSON, so neither this nor the number of processes changes a result.
    """

    def __init__(self, *, workers: int | None = None, command: list[str] | None = None) -> None:
        self.workers = workers or os.cpu_count() or 1
        self._command = command or [sys.executable, "-m", "search", "evaluate"]
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="evaluate")
        self._lock = threading.Lock()
        self._idle: list[subprocess.Popen[str]] = []
        self._all: set[subprocess.Popen[str]] = set()
        self._closed = False

    def processes(self) -> list[int]:
        """The process ids of the evaluators that were started and not seen to end."""
        with self._lock:
            return sorted(process.pid for process in self._all)

    def submit(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        return self._threads.map(self._evaluate, requests)

    def _evaluate(self, request: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps({"index": 0, "request": request}, separators=(",", ":")) + "\n"
        for _ in range(1 + RETRIES):
            process = self._take()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer = process.stdout.readline()
            except (BrokenPipeError, ValueError):  # ValueError: closed by `close`
                answer = ""
            if not answer.endswith("\n"):
                self._drop(process)
                continue
            with self._lock:
                self._idle.append(process)
            return _result(json.loads(answer))
        raise RuntimeError(f"an evaluation ended its process {1 + RETRIES} times")

    def _take(self) -> subprocess.Popen[str]:
        with self._lock:
            if self._closed:
                raise Cancelled
            if self._idle:
                return self._idle.pop()
            environment = {**os.environ, **ONE_THREAD}
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
            )
            self._all.add(process)
            return process

    def _drop(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.wait()
        with self._lock:
            self._all.discard(process)

    def close(self) -> None:
        """End the processes; evaluations under way are lost."""
        with self._lock:
            self._closed = True
            processes = list(self._all)
        for process in processes:
            process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for process in processes:
            process.wait()
            assert process.stdin is not None and process.stdout is not None
            process.stdout.close()
            try:
                process.stdin.close()
            except BrokenPipeError:
                pass


class SupervisedExecutor:
    """Ask a supervisor, which has workers somewhere; answers come back by index in any order.

    Args:
        send: writes one message to the supervisor.
    """

    def __init__(self, *, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._next = 0

    def answer(self, message: dict[str, Any] | None) -> None:
        """Hand in an ``evaluated`` message, from any thread; None: there will be no more."""
        self._answers.put(message)

    def submit(self, requests: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        first = self._next
        for request in requests:
            self._send({"type": "evaluate", "index": self._next, "request": request})
            self._next += 1
        waiting: dict[int, dict[str, Any]] = {}
        for index in range(first, self._next):
            while index not in waiting:
                message = self._answers.get()
                if message is None:
                    raise Cancelled
                # A worker that was replaced may answer a second time, or late.
                if first <= message["index"] < self._next:
                    waiting[message["index"]] = message
            yield _result(waiting.pop(index))

    def skip_to(self, index: int) -> None:
        """Number the next request `index`."""
        self._next = index

    def close(self) -> None:
        self.answer(None)


def _result(answer: dict[str, Any]) -> dict[str, Any]:
    if "error" in answer:
        raise InputError(answer["error"]["message"], code=answer["error"]["code"])
    result: dict[str, Any] = answer["result"]
    return result
