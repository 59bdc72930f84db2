"""Kill parts of the real server in mid-run: the log stays whole and the result is the undisturbed one, bit by bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.webapp.server import ROOT, Browser, Server, check_log, gone, wait_for

pytestmark = pytest.mark.chaos

EVALUATIONS = 150_000  # some seconds of annealing on the smallest example
POSTGRES = Path("/usr/lib/postgresql/15/bin")

Result = dict[str, str]


def result_of(browser: Browser, run_id: str, *, seconds: float = 180.0) -> Result:
    """Give the checksums of a finished run's files, checked against the files."""
    run = browser.until(run_id, "finished", "failed", "stopped", seconds=seconds)
    assert run["state"] == "finished", run["error"]
    assert run["evaluations"] == EVALUATIONS
    check_log(browser.events(run_id))
    assert json.loads(browser.artifact(run_id, "mapping.json"))
    return {artifact["name"]: artifact["sha256"] for artifact in run["artifacts"]}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("home"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def browser(server: Server) -> Browser:
    return Browser(server.address)


@pytest.fixture(scope="module")
def graph(browser: Browser) -> dict[str, Any]:
    return browser.example("maml")


@pytest.fixture(scope="module")
def undisturbed(browser: Browser, graph: dict[str, Any]) -> Result:
    """The result that every disturbed run must have too."""
    # The first one may have to compile the search's kernels.
    first = result_of(browser, browser.run(graph, evaluations=EVALUATIONS), seconds=600)
    assert {"mapping.json", "mapping.csv", "memory-map.svg"} <= set(first)
    return first


@pytest.fixture
def running(browser: Browser, graph: dict[str, Any], undisturbed: Result) -> str:
    """A run that has begun and has a checkpoint."""
    run_id = browser.run(graph, evaluations=EVALUATIONS)
    browser.after_evaluations(run_id, EVALUATIONS // 10)
    return run_id


def worker(server: Server, queue: str) -> psutil.Process:
    """Find the main process of the worker that serves a queue."""
    assert server.process is not None
    launcher = server.process.pid
    return wait_for(lambda: [p for p in server.find("celery", queue) if p.ppid() == launcher], what="a worker")[0]


def test_the_same_seed_gives_the_same_result(browser: Browser, graph: dict[str, Any], undisturbed: Result) -> None:
    assert result_of(browser, browser.run(graph, evaluations=EVALUATIONS)) == undisturbed


def test_a_killed_search(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    server.kill("spec.json")
    assert result_of(browser, running) == undisturbed
    assert browser.get(f"/api/runs/{running}")["attempt"] == 2


def test_a_killed_supervisor(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    search = server.find("spec.json")[0]
    supervisor = search.parent()
    assert supervisor is not None
    supervisor.kill()
    wait_for(lambda: gone(search), what="the end of the search with its supervisor", seconds=10)
    assert result_of(browser, running) == undisturbed


def test_a_killed_worker(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    main = worker(server, "search")
    family = main.children(recursive=True)
    main.kill()
    wait_for(lambda: all(gone(p) for p in family), what="the end of all under the worker", seconds=10)
    assert result_of(browser, running) == undisturbed
    assert browser.get(f"/api/runs/{running}")["attempt"] == 2


def test_a_killed_evaluator_worker(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    worker(server, "evaluate,compile").kill()
    assert result_of(browser, running) == undisturbed


def test_killed_evaluators(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    for process in server.find("search", "evaluate", "-m"):
        if "celery" not in " ".join(process.cmdline()):
            process.kill()
    assert result_of(browser, running) == undisturbed


def test_a_killed_redis(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    server.kill("redis-server")
    assert result_of(browser, running) == undisturbed
    # And the workers still take what comes next.
    graph = next(g for g in browser.get("/api/graphs")["items"] if g["example_name"] == "maml")
    assert result_of(browser, browser.run(graph, evaluations=EVALUATIONS)) == undisturbed


def test_a_killed_web_process(server: Server, browser: Browser, running: str, undisturbed: Result) -> None:
    server.kill("webapp.server")
    wait_for(lambda: _answers(browser), what="the web process again")
    assert result_of(browser, running) == undisturbed


def _answers(browser: Browser) -> bool:
    try:
        return browser.raw("GET", "/healthz")[0] == 200
    except OSError:
        return False


def open_socket(browser: Browser) -> ClientConnection:
    address = browser.address.replace("http://", "ws://") + "/ws/events"
    return connect(address, origin=browser.address, additional_headers={"Cookie": browser.cookies}, close_timeout=0.3)


def follow(browser: Browser, run_id: str, *, drop_every: int | None = None) -> list[dict[str, Any]]:
    """Watch a run to its end as a page does; drop the socket every few events."""
    seen: list[dict[str, Any]] = []
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        try:
            with open_socket(browser) as socket:
                socket.send(json.dumps({"type": "subscribe", "run": run_id, "after": len(seen)}))
                got = 0
                while drop_every is None or got < drop_every:
                    frame = json.loads(socket.recv(timeout=60))
                    if "seq" not in frame:
                        continue
                    seen.append(frame)
                    got += 1
                    if frame["kind"] == "state" and frame["data"]["state"] in ("finished", "failed", "stopped"):
                        return seen
        except (ConnectionClosed, InvalidStatus, OSError):
            time.sleep(0.2)
    raise AssertionError("the run did not end")


def test_a_socket_that_is_dropped_every_few_events(
    browser: Browser, graph: dict[str, Any], undisturbed: Result
) -> None:
    run_id = browser.run(graph, evaluations=EVALUATIONS)
    seen = follow(browser, run_id, drop_every=5)
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
    stored = browser.events(run_id)
    assert [(f["seq"], f["kind"], f["data"]) for f in seen] == [(e["seq"], e["kind"], e["data"]) for e in stored]
    assert result_of(browser, run_id) == undisturbed


def test_a_socket_sees_each_event_once_while_everything_is_killed(
    server: Server, browser: Browser, graph: dict[str, Any], undisturbed: Result
) -> None:
    run_id = browser.run(graph, evaluations=EVALUATIONS)
    seen: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: seen.extend(follow(browser, run_id)))
    thread.start()
    for words in (("redis-server",), ("spec.json",), ("webapp.server",)):
        time.sleep(1.0)
        if server.find(*words):
            server.kill(*words)
    thread.join(timeout=240)
    assert not thread.is_alive()
    assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
    wait_for(lambda: _answers(browser), what="the web process again")
    assert result_of(browser, run_id) == undisturbed


def second_worker(server: Server) -> subprocess.Popen[bytes]:
    """Start one more worker on queue `search` of the same installation, as another machine would."""
    command = [sys.executable, "-m", "celery", "-q", "-A", "webapp.celery", "worker", "-Q", "search", "-c", "1"]
    environment = server.environment | {
        "GRAPHSMITH_INSTANCE": "second",
        "C_FORCE_ROOT": "1",
        "REMAP_SIGTERM": "SIGQUIT",
    }
    return subprocess.Popen(
        [*command, "-n", "second@%h", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def send_again(server: Server, run_id: str, times: int) -> None:
    """Put more messages about a run into the queue."""
    program = (
        "import os, sys, django; os.environ['DJANGO_SETTINGS_MODULE'] = 'webapp.settings'; django.setup();"
        "from webapp.runs.tasks import supervise;"
        "[supervise.apply_async((sys.argv[1],)) for _ in range(int(sys.argv[2]))]"
    )
    command = [sys.executable, "-c", program, run_id, str(times)]
    subprocess.run(command, cwd=ROOT, env=server.environment, check=True, timeout=60)


def test_two_workers_that_are_given_one_run(
    server: Server, browser: Browser, graph: dict[str, Any], undisturbed: Result
) -> None:
    second = second_worker(server)
    try:
        run_id = browser.run(graph, evaluations=EVALUATIONS)
        send_again(server, run_id, 4)
        assert result_of(browser, run_id) == undisturbed
        assert browser.get(f"/api/runs/{run_id}")["attempt"] == 1
    finally:
        second.terminate()
        second.wait(timeout=30)


def test_a_worker_that_sleeps_past_its_lease_writes_no_more(
    server: Server, browser: Browser, running: str, undisturbed: Result
) -> None:
    search = server.find("spec.json")[0]
    supervisor = search.parent()
    assert supervisor is not None
    second = second_worker(server)
    try:
        for process in (supervisor, search):
            process.suspend()
        wait_for(lambda: browser.get(f"/api/runs/{running}")["attempt"] == 2, what="another holder")
        for process in (search, supervisor):
            process.resume()
        assert result_of(browser, running) == undisturbed
        wait_for(lambda: gone(search), what="the end of the replaced search")
    finally:
        second.terminate()
        second.wait(timeout=30)


def test_stop_and_resume(browser: Browser, running: str, undisturbed: Result) -> None:
    browser.post(f"/api/runs/{running}/stop")
    stopped = browser.until(running, "stopped")
    assert stopped["evaluations"] < EVALUATIONS
    assert json.loads(browser.artifact(running, "mapping.json"))
    browser.post(f"/api/runs/{running}/resume")
    assert result_of(browser, running) == undisturbed


def test_a_killed_launcher_leaves_no_process_and_the_next_one_goes_on(
    tmp_path_factory: pytest.TempPathFactory, undisturbed: Result
) -> None:
    server = Server(tmp_path_factory.mktemp("other"))
    try:
        server.start()
        browser = Browser(server.address)
        run_id = browser.run(browser.example("maml"), evaluations=EVALUATIONS)
        browser.after_evaluations(run_id, EVALUATIONS // 10)
        family = server.descendants()
        assert server.process is not None
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        wait_for(lambda: all(gone(p) for p in family), what="the end of all processes", seconds=20)
        server.start()
        assert result_of(Browser(server.address), run_id) == undisturbed
        assert server.stop() == 0
    finally:
        server.close()


@pytest.fixture
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A private PostgreSQL on a socket in a temporary folder; give its address."""
    if not (POSTGRES / "initdb").exists():
        pytest.fail("PostgreSQL is missing: install Debian's package postgresql")
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("pg", numbered=True)))
    as_user: list[str] = []
    if os.getuid() == 0:
        # PostgreSQL refuses to run as root.
        as_user = ["runuser", "-u", "postgres", "--"]
        home = Path("/tmp") / f"graphsmith-pg-{os.getpid()}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(mode=0o700)
        shutil.chown(home, "postgres", "postgres")
        folder = home
    data = folder / "data"

    def run(*command: str) -> None:
        subprocess.run([*as_user, *command], check=True, cwd="/", capture_output=True, timeout=120)

    try:
        run(str(POSTGRES / "initdb"), "-D", str(data), "-U", "graphsmith", "--auth", "trust", "--no-sync")
        options = (
            f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c unix_socket_permissions=0777"
        )
        folder.chmod(0o755)
        run(str(POSTGRES / "pg_ctl"), "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            run(str(POSTGRES / "createdb"), "-h", str(folder), "-U", "graphsmith", "graphsmith")
            yield f"postgresql://graphsmith@{str(folder).replace('/', '%2F')}/graphsmith"
        finally:
            run(str(POSTGRES / "pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        if as_user:
            shutil.rmtree(folder, ignore_errors=True)


def test_the_same_on_postgresql(postgres: str, tmp_path_factory: pytest.TempPathFactory, undisturbed: Result) -> None:
    server = Server(tmp_path_factory.mktemp("pghome"), DATABASE_URL=postgres)
    try:
        server.start()
        browser = Browser(server.address)
        graph = browser.example("maml")
        run_id = browser.run(graph, evaluations=EVALUATIONS)
        browser.after_evaluations(run_id, EVALUATIONS // 10)
        server.kill("spec.json")
        browser.until(run_id, "running")
        seen = follow(browser, run_id, drop_every=20)
        assert [frame["seq"] for frame in seen] == list(range(1, len(seen) + 1))
        assert result_of(browser, run_id) == undisturbed
        run_id = browser.run(graph, evaluations=EVALUATIONS)
        browser.after_evaluations(run_id, EVALUATIONS // 10)
        worker(server, "search").kill()
        assert result_of(browser, run_id) == undisturbed
        assert not list(server.home.glob("*.sqlite3*"))
    finally:
        server.close()


def test_no_part_of_the_server_was_surprised(server: Server, undisturbed: Result) -> None:
    """Runs last: what the others did was met by warnings, not by errors of ours."""
    assert [line for line in server.log if "ERROR graphsmith" in line] == []
