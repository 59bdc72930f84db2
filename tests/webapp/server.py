"""The real server with all its processes, for tests that talk to it from outside, and kill parts of it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 60.0


class Server:
    """`manage.py up` on a free loopback port with a home of its own."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.home = home
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "REDIS_URL")},
            "GRAPHSMITH_HOME": str(home),
            "LEASE_SECONDS": "3",
            "CHECKPOINT_SECONDS": "0.3",
            "FREE_DISK_BYTES": "0",
            "SEARCH_SLOTS": "1",
            **environment,
        }
        self.process: subprocess.Popen[str] | None = None
        self.address = ""
        self.log: list[str] = []

    def start(self) -> None:
        """Start, and wait until the address is printed."""
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "up", "--port", "0"],
            cwd=ROOT,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, lines), daemon=True).start()
        deadline = time.monotonic() + START_SECONDS
        while True:
            line = lines.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line is not None, "".join(self.log)
            if line.startswith("Graphsmith is at "):
                self.address = line.split()[-1].rstrip("/")
                return

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.log.append(line)
            lines.put(line)
        lines.put(None)

    def stop(self) -> int:
        """End it as Ctrl-C does; return the exit status."""
        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=60)
        assert self.process.stdout is not None
        return status

    def close(self) -> None:
        """End whatever is left of it."""
        if self.process is None:
            return
        left = self.descendants()
        if self.process.poll() is None:
            self.stop()
        for process in left:
            if process.is_running():
                process.kill()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def descendants(self) -> list[psutil.Process]:
        """List all processes that the launcher has started, directly or not."""
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def find(self, *words: str) -> list[psutil.Process]:
        """List those of them whose command line has all the words, parents before children."""
        found = []
        for process in self.descendants():
            try:
                line = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            if all(any(word in part for part in line) for word in words):
                found.append(process)
        return found

    def kill(self, *words: str, number: int = signal.SIGKILL) -> psutil.Process:
        """Send a signal to the first process whose command line has all the words."""
        process = wait_for(lambda: self.find(*words), what=f"a process {words}")[0]
        process.send_signal(number)
        return process


class Browser:
    """What a page does over HTTP: cookies, the CSRF header, JSON."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.jar = CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.jar))
        self.get("/api/session")

    def cookie(self, name: str) -> str:
        return next(cookie.value or "" for cookie in self.jar if cookie.name == name)

    @property
    def cookies(self) -> str:
        return "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.jar)

    def call(self, method: str, path: str, data: bytes | None = None, **headers: str) -> Any:
        status, body = self.raw(method, path, data, **headers)
        assert status < 400, (method, path, status, body[:2000])
        return json.loads(body) if body else None

    def raw(self, method: str, path: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        request = urllib.request.Request(self.address + path, data=data, method=method)
        if method != "GET":
            request.add_header("X-CSRFToken", self.cookie("csrftoken"))
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            with self.opener.open(request, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def get(self, path: str) -> Any:
        return self.call("GET", path)

    def post(self, path: str, body: Any = None, **headers: str) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        return self.call("POST", path, data, Content_Type="application/json", **headers)

    def delete(self, path: str) -> None:
        self.call("DELETE", path)

    def upload(self, name: str, data: bytes) -> tuple[int, Any]:
        boundary = "----graphsmith-test"
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
        body = (
            head.encode()
            + b"Content-Type: application/octet-stream\r\n\r\n"
            + data
            + f"\r\n--{boundary}--\r\n".encode()
        )
        status, answer = self.raw("POST", "/api/graphs", body, Content_Type=f"multipart/form-data; boundary={boundary}")
        return status, json.loads(answer)

    def example(self, name: str) -> Any:
        """Wait until an example is ready."""

        def ready() -> Any:
            for graph in self.get("/api/graphs")["items"]:
                if graph["example_name"] == name and graph["state"] == "ready":
                    return graph
            return None

        return wait_for(ready, what=f"example {name}")

    def run(self, graph: dict[str, Any], *, evaluations: int, seed: int = 0, **changes: Any) -> str:
        body = {
            "graph": graph["id"],
            "device": graph["suggested"]["device"],
            "capacity": graph["suggested"]["capacity"],
            "settings": {"method": "annealing"},
            "budget": {"evaluations": evaluations},
            "seed": seed,
        }
        return self.post("/api/runs", body | changes)["id"]

    def until(self, run_id: str, *states: str, seconds: float = 120.0) -> Any:
        """Wait until a run is in one of the states."""

        def there() -> Any:
            run = self.get(f"/api/runs/{run_id}")
            return run if run["state"] in states else None

        return wait_for(there, what=f"run {states}", seconds=seconds)

    def after_evaluations(self, run_id: str, count: int) -> None:
        """Wait until a run has done some work and has a checkpoint."""

        def there() -> bool:
            run = self.get(f"/api/runs/{run_id}")
            assert run["state"] in ("queued", "running"), run
            return run["evaluations"] >= count and any(e["kind"] == "checkpoint" for e in self.events(run_id))

        wait_for(there, what=f"{count} evaluations")

    def events(self, run_id: str) -> list[dict[str, Any]]:
        """Read a whole log."""
        found: list[dict[str, Any]] = []
        while page := self.get(f"/api/runs/{run_id}/events?after={len(found)}&limit=1000")["items"]:
            found += page
        return found

    def artifact(self, run_id: str, name: str) -> bytes:
        status, body = self.raw("GET", f"/api/runs/{run_id}/artifacts/{name}")
        assert status == 200, (status, body)
        return body


def gone(process: psutil.Process) -> bool:
    """Say whether a process has ended; one that nobody has waited for yet has, too."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def wait_for(condition: Callable[[], Any], *, what: str, seconds: float = 120.0) -> Any:
    """Poll until the condition gives something true; return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: it never happened"
        time.sleep(0.05)
    return found


def check_log(events: list[dict[str, Any]]) -> None:
    """Assert what every log must be: no gap, no double, values that only go on."""
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    points = [
        point
        for event in events
        if event["kind"] == "progress"
        for point in zip(event["data"]["step"], event["data"]["evaluations"], strict=True)
    ]
    assert points == sorted(set(points))
    bests = [event["data"]["latency_ps"] for event in events if event["kind"] == "best"]
    assert bests == sorted(set(bests), reverse=True)
    checkpoints = [event["data"]["step"] for event in events if event["kind"] == "checkpoint"]
    assert checkpoints == sorted(set(checkpoints))
    assert sum(event["kind"] == "started" for event in events) == 1
