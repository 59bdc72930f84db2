"""Run one search in its own process and keep its log: the body of the task on queue `search`."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import selectors
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from webapp import children, files, messages
from webapp.accounts.selectors import storage_used
from webapp.graphs.selectors import module_file, program_file
from webapp.runs import events, leases
from webapp.runs.models import Artifact, Evaluation, Run

log = logging.getLogger("graphsmith.supervisor")

State = Run.State

FLUSH_SECONDS = 0.2  # how long events are collected before they are stored together
ANSWER_SECONDS = 0.02  # how often answers to evaluations are looked for
POLL_SECONDS = 0.5  # how often the stop flag is looked at
CHUNK = 1 << 18
MAX_LINE_BYTES = 64 * 1024 * 1024
LAST_WORDS = 20  # lines of standard error that are kept
KEPT_CHECKPOINTS = 2


class SearchFailed(Exception):
    """The search ended for good, and why."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class SearchLost(Exception):
    """The search's process ended without a word: another attempt goes on from its last checkpoint."""


def supervise(run: Run) -> None:
    """Bring a claimed run to its end, or hand it back; whatever happens, its process group is gone afterwards."""
    supervision = Supervision(run)
    try:
        try:
            supervision.work()
        except SearchFailed as failure:
            supervision.flush()
            _end(run, State.FAILED, reason="failed", error={"code": failure.code, "message": failure.message})
        except SearchLost as loss:
            supervision.flush()
            leases.hand_back(run, guard=leases.mine(run), reason=str(loss), silent=not supervision.checkpoints)
    except events.Replaced:
        log.info("run %s is in other hands", run.pk)
    except (SystemExit, KeyboardInterrupt):
        # The worker is being shut down: let the next one go on at once.
        with contextlib.suppress(events.Replaced):
            leases.hand_back(run, guard=leases.mine(run), reason="its worker was shut down", silent=False)
        raise
    finally:
        supervision.close()


def _end(run: Run, state: str, *, reason: str, error: dict[str, str] | None = None) -> None:
    """Write a run's last state."""
    entries: list[events.Entry] = [("error", error)] if error else []
    entries.append(("state", {"state": str(state), "attempt": run.attempt, "reason": reason}))
    changes = {
        "state": state,
        "reason": reason,
        "error": error,
        "finished": timezone.now(),
        "lease_owner": "",
        "lease_until": None,
        "stop_requested_at": None,
        "file_bytes": files.folder_bytes(run.folder),
    }
    events.append(run.pk, entries, guard=leases.mine(run), changes=changes)


class Supervision:
    """One attempt: the process, what it said that is not stored yet, and what it waits for."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.checkpoints = 0  # new ones of this attempt
        self.folder = files.local_path(f"{run.folder}/attempts/{run.attempt}")
        self.process: subprocess.Popen[bytes] | None = None
        self.selector = selectors.DefaultSelector()
        self.input = bytearray()  # bytes for the search's standard input
        self.output = bytearray()  # an unfinished line of its standard output
        self.last_words: deque[str] = deque(maxlen=LAST_WORDS)
        self.pending: list[events.Entry] = []
        self.changes: dict[str, Any] = {}
        self.wanted: list[Evaluation] = []  # asked for, not stored yet
        self.open: dict[int, Evaluation] = {}  # stored, not answered yet, by index
        self.sent_at: dict[int, tuple[float, float]] = {}  # by index: when its message was sent, patience in seconds
        self.ending: dict[str, Any] | None = None  # the "finished" line
        self.stop_at: float | None = None  # when the stop was passed on
        self.terminated = False

    # -- the loop

    def work(self) -> None:
        """Start the search and serve it until it ends.

        Raises:
            SearchFailed, SearchLost: it did not come to its end.
            Replaced: the run is in other hands.
        """
        self._start()
        now = time.monotonic()
        flush_at, poll_at, room_at, answer_at = now + FLUSH_SECONDS, now, now, now
        renewed = now
        while self.selector.get_map():
            wait = ANSWER_SECONDS if self.open else FLUSH_SECONDS / 2
            for key, _ in self.selector.select(wait):
                key.data()
            now = time.monotonic()
            if self.wanted:
                self._store_wanted()
            if self.open and now >= answer_at:
                self._answer()
                answer_at = now + ANSWER_SECONDS
            if now >= flush_at:
                if self.flush():
                    renewed = now
                flush_at = now + FLUSH_SECONDS
            if now >= poll_at:
                due = now - renewed >= settings.HEARTBEAT_SECONDS
                self._poll(renew=due)
                renewed = now if due else renewed
                poll_at = now + min(POLL_SECONDS, settings.HEARTBEAT_SECONDS)
            if now >= room_at:
                self._check_room()
                room_at = now + settings.HEARTBEAT_SECONDS
            self._hurry(now)
        self._conclude()

    def _start(self) -> None:
        run = self.run
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        checkpoint = self._checkpoint_to_resume()
        module = files.local_path(module_file(run.graph, "scheduled"))
        spec = {
            "kind": run.kind,
            "program": str(files.local_path(program_file(run.graph))),
            "module": str(module) if module.exists() else None,
            "source": run.graph.name,
            "sha256": run.graph.blob_id,
            "device": run.device_toml or run.device,
            "capacity": run.capacity,
            "settings": run.settings,
            "budget": run.budget,
            "seed": run.seed,
            "checkpoint": str(checkpoint) if checkpoint else None,
            "checkpoint_seconds": settings.CHECKPOINT_SECONDS,
            "folder": str(self.folder),
            "executor": settings.EXECUTOR,
        }
        path = self.folder / "spec.json"
        path.write_text(json.dumps(spec))
        self.process = children.spawn(
            [*settings.SEARCH_COMMAND, "run", str(path)],
            memory_bytes=settings.RUN_MEMORY_BYTES,
            stdin=subprocess.PIPE,
        )
        assert self.process.stdin and self.process.stdout and self.process.stderr
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            os.set_blocking(stream.fileno(), False)
        self.selector.register(self.process.stdout, selectors.EVENT_READ, self._read_output)
        self.selector.register(self.process.stderr, selectors.EVENT_READ, self._read_words)

    def _checkpoint_to_resume(self) -> Path | None:
        run = self.run
        if not run.checkpoint:
            return None
        path = files.local_path(f"{run.folder}/{run.checkpoint}")
        if not path.is_file() or _sha256(path) != run.checkpoint_sha256:
            raise SearchFailed("checkpoint-damaged", "The run's last checkpoint is damaged; run it again instead.")
        return path

    def _poll(self, *, renew: bool) -> None:
        run = self.run
        if renew:
            asked = leases.renew(run)
        else:
            row = Run.objects.filter(pk=run.pk, **leases.mine(run)).values_list("stop_requested_at").first()
            if row is None:
                raise events.Replaced(str(run.pk))
            asked = row[0]
        if asked is not None and self.stop_at is None:
            self.run.state = State.STOPPING
            self._say({"type": "stop"})
            self.stop_at = time.monotonic()

    def _check_room(self) -> None:
        # Half of the reserve is left for the database, so that the failure can still be written.
        if files.free_bytes() < settings.FREE_DISK_BYTES // 2:
            raise SearchFailed("disk-full", "The server's disk is full. The last checkpoint is kept; resume later.")
        if storage_used(self.run.owner) > self.run.owner.storage_quota_bytes:
            raise SearchFailed("storage-quota", "Your storage is full. The last checkpoint is kept; resume later.")

    def _hurry(self, now: float) -> None:
        """After a stop: a grace, then SIGTERM, another grace, then SIGKILL of the whole process group."""
        if self.stop_at is None or self.process is None or self.ending is not None:
            return
        if now - self.stop_at > settings.STOP_GRACE_SECONDS and not self.terminated:
            self.terminated = True
            with contextlib.suppress(ProcessLookupError):
                self.process.terminate()
        elif now - self.stop_at > 2 * settings.STOP_GRACE_SECONDS:
            children.kill_group(self.process)

    def _conclude(self) -> None:
        """Both outputs are closed: say how the search ended."""
        assert self.process is not None
        try:
            status = self.process.wait(timeout=settings.STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            status = children.kill_group(self.process)
        self.flush()
        if self.ending is not None:
            self._finish(self.ending)
        elif self.stop_at is not None:
            _end(self.run, State.STOPPED, reason="killed" if self.terminated else "stopped")
        elif any("MemoryError" in line or "bad_alloc" in line for line in self.last_words):
            limit = settings.RUN_MEMORY_BYTES
            raise SearchFailed("memory-limit", f"The search needed more than its {limit} bytes of memory.")
        else:
            words = f": {self.last_words[-1]}" if self.last_words else ""
            raise SearchLost(f"the search {children.describe_exit(status)}{words}")

    def close(self) -> None:
        """End the process group and tidy up."""
        if self.process is not None:
            children.kill_group(self.process)
            for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
        self.selector.close()
        run_id, folder = self.run.pk, self.run.folder
        shutil.rmtree(self.folder, ignore_errors=True)
        Evaluation.objects.filter(run_id=run_id, attempt=self.run.attempt).delete()
        if not Run.objects.filter(pk=run_id).exists():
            files.remove_folder(folder)  # Deleted meanwhile; the search may have written after that.

    # -- from the search

    def _read_output(self) -> None:
        assert self.process is not None and self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), CHUNK)
        if not data:
            self.selector.unregister(self.process.stdout)
            return
        self.output += data
        *lines, rest = self.output.split(b"\n")
        self.output = bytearray(rest)
        if len(rest) > MAX_LINE_BYTES:
            raise SearchFailed("protocol", "The search wrote a line without end.")
        for line in lines:
            if line.strip():
                self._take(line)

    def _read_words(self) -> None:
        assert self.process is not None and self.process.stderr is not None
        data = os.read(self.process.stderr.fileno(), CHUNK)
        if not data:
            self.selector.unregister(self.process.stderr)
            return
        for line in data.decode(errors="replace").splitlines():
            if line.strip():
                self.last_words.append(line.strip()[:500])

    def _take(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            kind = said.pop("type")
            take = getattr(self, f"_take_{kind}")
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise SearchFailed("protocol", f"The search wrote what is no message: {line[:200]!r}") from error
        take(said)

    def _take_started(self, said: dict[str, Any]) -> None:
        if self.run.bound is not None:
            return  # An earlier attempt said the same.
        self.run.bound = said["bound"]
        data = {name: said[name] for name in ("baselines", "bound", "fits")}
        self._note("started", data, **data)

    def _take_progress(self, said: dict[str, Any]) -> None:
        """Join progress that follows on progress into one event of columns."""
        run = self.run
        # A resumed search repeats what it did after its checkpoint; what the log has already is not written twice.
        if (said["step"], said["evaluations"]) <= (run.step, run.evaluations):
            return
        names = ("step", "evaluations", "seconds", "best")
        run.step, run.evaluations, run.seconds, run.best = (said[name] for name in names)
        if self.pending and self.pending[-1][0] == "progress":
            data = self.pending[-1][1]
        else:
            data = {name: [] for name in names} | {"metrics": {}}
            self.pending.append(("progress", data))
        before = len(data["step"])
        for name in names:
            data[name].append(said[name])
        metrics = data["metrics"]
        for name, value in said.get("metrics", {}).items():
            metrics.setdefault(name, [None] * before).append(value)
        for column in metrics.values():
            column.extend([None] * (before + 1 - len(column)))
        self.changes |= {name: said[name] for name in names}

    def _take_best(self, said: dict[str, Any]) -> None:
        run = self.run
        if run.best_shown is not None and said["latency_ps"] >= run.best_shown:
            return
        run.best_shown = said["latency_ps"]
        best = min(said["latency_ps"], said["latency_ps"] if run.best is None else run.best)
        run.best = best
        self._note("best", said, best_shown=said["latency_ps"], best=best)

    def _take_checkpoint(self, said: dict[str, Any]) -> None:
        run = self.run
        if said["step"] <= run.checkpoint_step and run.checkpoint:
            return
        source = self._inside(said["path"])
        name = f"checkpoints/{run.attempt}-{said['step']}"
        target = files.local_path(f"{run.folder}/{name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            # A link, because the search removes its older checkpoints by itself.
            os.link(source, target)
        except FileExistsError:
            pass
        except FileNotFoundError:
            return  # Removed already: a newer one is on its way.
        run.checkpoint, run.checkpoint_sha256, run.checkpoint_step = name, said["sha256"], said["step"]
        self.checkpoints += 1
        data = {key: said[key] for key in ("step", "evaluations", "sha256")}
        self._note(
            "checkpoint",
            data,
            checkpoint=name,
            checkpoint_sha256=said["sha256"],
            checkpoint_step=said["step"],
            silent_attempts=0,
        )
        run.silent_attempts = 0
        self.flush()
        self._drop_old_checkpoints()

    def _drop_old_checkpoints(self) -> None:
        folder = files.local_path(f"{self.run.folder}/checkpoints")
        by_age = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        for path in by_age[:-KEPT_CHECKPOINTS]:
            if path.name != Path(self.run.checkpoint).name:
                path.unlink(missing_ok=True)
        Run.objects.filter(pk=self.run.pk).update(file_bytes=files.folder_bytes(self.run.folder))

    def _take_log(self, said: dict[str, Any]) -> None:
        self._note("log", {"message": str(said["message"])[:2000]})

    def _take_evaluate(self, said: dict[str, Any]) -> None:
        run = self.run
        self.wanted.append(Evaluation(run=run, attempt=run.attempt, index=said["index"], request=said["request"]))

    def _take_finished(self, said: dict[str, Any]) -> None:
        self.ending = said

    def _take_error(self, said: dict[str, Any]) -> None:
        raise SearchFailed(str(said.get("code", "search")), str(said.get("message", "The search failed."))[:2000])

    def _note(self, kind: str, data: dict[str, Any], **changes: Any) -> None:
        self.pending.append((kind, data))
        self.changes |= changes

    def flush(self) -> bool:
        """Store what was collected, in one transaction that also renews the lease; say whether there was any."""
        if not self.pending:
            return False
        entries, self.pending = self.pending, []
        changes, self.changes = self.changes, {}
        size = sum(len(json.dumps(data)) for _, data in entries)
        events.append(
            self.run.pk,
            entries,
            guard=leases.mine(self.run),
            changes=changes | {"lease_until": leases.until(timezone.now()), "event_bytes": F("event_bytes") + size},
        )
        return True

    # -- evaluations

    def _store_wanted(self) -> None:
        wanted, self.wanted = self.wanted, []
        with transaction.atomic():
            for row in Evaluation.objects.bulk_create(wanted):
                self.open[row.index] = row
                self._send_evaluation(row, patience=settings.HEARTBEAT_SECONDS * 2)

    def _send_evaluation(self, row: Evaluation, *, patience: float) -> None:
        from webapp.runs.tasks import evaluate

        self.sent_at[row.index] = (time.monotonic(), patience)
        messages.send_on_commit(evaluate, row.pk)

    def _answer(self) -> None:
        """Pass on the results that have come, and ask again for those that are overdue."""
        rows = Evaluation.objects.filter(run_id=self.run.pk, attempt=self.run.attempt)
        done = list(rows.filter(Q(result__isnull=False) | ~Q(error="")))
        for row in done:
            if row.error:
                raise SearchFailed("evaluation", f"An evaluation failed: {row.error}")
            self._say({"type": "evaluated", "index": row.index, "result": row.result})
            self.open.pop(row.index, None)
            self.sent_at.pop(row.index, None)
        if done:
            rows.filter(pk__in=[row.pk for row in done]).delete()
        now = time.monotonic()
        for index, row in self.open.items():
            sent, patience = self.sent_at[index]
            if now - sent > patience:
                # The broker may have lost the message with its last second; a second one does no harm.
                self._send_evaluation(row, patience=2 * patience)

    # -- to the search

    def _say(self, message: dict[str, Any]) -> None:
        assert self.process is not None and self.process.stdin is not None
        if self.process.stdin.closed:
            return
        if not self.input:
            self.selector.register(self.process.stdin, selectors.EVENT_WRITE, self._write_input)
        self.input += json.dumps(message).encode() + b"\n"
        self._write_input()

    def _write_input(self) -> None:
        assert self.process is not None and self.process.stdin is not None
        try:
            sent = os.write(self.process.stdin.fileno(), self.input)
        except BlockingIOError:
            return
        except BrokenPipeError:
            sent = len(self.input)  # It has gone; its outputs say how.
        del self.input[:sent]
        if not self.input:
            self.selector.unregister(self.process.stdin)

    # -- the end

    def _inside(self, name: str) -> Path:
        path = Path(name)
        path = (path if path.is_absolute() else self.folder / path).resolve()
        if not path.is_relative_to(self.folder.resolve()):
            raise SearchFailed("protocol", "The search named a file outside of its folder.")
        return path

    def _finish(self, said: dict[str, Any]) -> None:
        """Keep the artifacts and write the final events in one transaction."""
        run = self.run
        rows = []
        shelf = f"{run.folder}/artifacts/{run.attempt}"
        files.local_path(shelf).mkdir(parents=True, exist_ok=True)
        for artifact in said["artifacts"]:
            source = self._inside(artifact["path"])
            name = files.safe_name(artifact["name"])
            target = files.local_path(f"{shelf}/{name}")
            source.replace(target)
            size, digest = target.stat().st_size, _sha256(target)
            if digest != artifact["sha256"]:
                raise SearchFailed("artifact", f"The file {name} is not what the search wrote.")
            rows.append(Artifact(run=run, name=name, file=f"{shelf}/{name}", bytes=size, sha256=digest))
        stopped = said["reason"] == "stopped"
        state = State.STOPPED if stopped else State.FINISHED
        if not stopped:
            files.remove_folder(f"{run.folder}/checkpoints")
        names = ("reason", "step", "evaluations", "seconds", "latency_ps")
        data = {name: said[name] for name in names} | {"artifacts": [row.name for row in rows]}
        with transaction.atomic():
            events.append(
                run.pk,
                [
                    ("finished", data),
                    ("state", {"state": str(state), "attempt": run.attempt, "reason": said["reason"]}),
                ],
                guard=leases.mine(run),
                changes={
                    "state": state,
                    "reason": said["reason"],
                    "finished": timezone.now(),
                    "step": said["step"],
                    "evaluations": said["evaluations"],
                    "seconds": said["seconds"],
                    "best": said["latency_ps"],
                    "lease_owner": "",
                    "lease_until": None,
                    "stop_requested_at": None,
                    "silent_attempts": 0,
                },
            )
            run.artifacts.all().delete()
            Artifact.objects.bulk_create(rows)
        for older in files.local_path(f"{run.folder}/artifacts").iterdir():
            if older.name != str(run.attempt):
                shutil.rmtree(older, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        Run.objects.filter(pk=run.pk).update(file_bytes=files.folder_bytes(run.folder))


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
