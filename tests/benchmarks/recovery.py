"""How long a run stands still after one of its processes was killed, at the default lease."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.webapp.server import Browser, Server, wait_for

TITLE = "Recovery after SIGKILL, at the default lease of 30 s"
LONG = False

VICTIMS = {
    "search process": ("spec.json",),
    "search worker with its supervisor": ("celery", "search@"),
    "redis-server": ("redis-server",),
    "web server": ("webapp.server",),
}
EVALUATIONS = 10**8  # more than it will do


def rows(done: list[dict]) -> Iterator[dict]:
    with tempfile.TemporaryDirectory() as home:
        server = Server(Path(home), LEASE_SECONDS="30", CHECKPOINT_SECONDS="2")
        try:
            server.start()
            browser = Browser(server.address)
            graph = browser.example("maml")
            run = browser.run(graph, evaluations=EVALUATIONS)
            browser.after_evaluations(run, 1000)
            for victim, words in VICTIMS.items():
                yield {"killed": victim, "seconds_until_progress": round(recovery(server, browser, run, words), 2)}
            browser.post(f"/api/runs/{run}/stop")
            browser.until(run, "stopped")
        finally:
            server.close()


def recovery(server: Server, browser: Browser, run: str, words: tuple[str, ...]) -> float:
    """Kill a process; return the seconds until the log has progress beyond all that it had."""
    before = browser.get(f"/api/runs/{run}")["evaluations"]
    server.kill(*words)
    killed = time.monotonic()

    def further() -> bool:
        try:
            return browser.get(f"/api/runs/{run}")["evaluations"] > before + 5000
        except OSError:  # the web server is the victim
            return False

    wait_for(further, what=f"progress after {words}")
    return time.monotonic() - killed
