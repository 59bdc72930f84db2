"""Change runs: each action is one transaction that writes its event."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from accelsim.device import load_device, parse_device
from search.engine import MOST_OF_A_BUDGET, Budget
from webapp import __version__, files
from webapp.accounts.models import User
from webapp.accounts.selectors import storage_used
from webapp.graphs.selectors import ready_graph
from webapp.problems import Problem, not_found
from webapp.runs import events, methods, selectors, tasks
from webapp.runs.models import Run
from webapp.runs.schemas import RunIn

State = Run.State


def create(user: User, *, body: RunIn, idempotency_key: str | None) -> tuple[Run, bool]:
    """Queue a run, or find the one that the same key made before. Say whether it is new."""
    if idempotency_key:
        known = selectors.runs_visible_to(user).filter(idempotency_key=idempotency_key).first()
        if known is not None:
            return selectors.run_for(user, known.pk), False
    graph = ready_graph(user, body.graph)
    if (body.device is None) == (body.device_toml is None):
        raise Problem(422, "device", "Give a device's name, or a device of your own as TOML.", field="device")
    if body.device_toml is not None:
        device = parse_device(body.device_toml, capacity_bytes=body.capacity)
    else:
        if "/" in (body.device or "") or (body.device or "").endswith(".toml"):
            raise Problem(422, "device-name", "A device is given by its name, not by a path.", field="device")
        device = load_device(body.device or "", capacity_bytes=body.capacity)
    checked = methods.check_settings(body.settings)
    check_budget(body.budget)
    run = Run(
        owner=user,
        graph=graph,
        device=device.name,
        device_toml=body.device_toml,
        capacity=body.capacity,
        settings=checked,
        budget=body.budget.model_dump(),
        seed=body.seed,
        idempotency_key=idempotency_key,
    )
    try:
        return _enqueue(run), True
    except IntegrityError as error:
        # The same key arrived twice at once and the other request was faster, or the module was deleted meanwhile.
        same = Run.objects.filter(owner=user, idempotency_key=idempotency_key) if idempotency_key is not None else None
        found = same.first() if same is not None else None
        if found is None:
            raise not_found() from error
        return selectors.run_for(user, found.pk), False


def check_budget(budget: Budget) -> None:
    """Refuse a budget that the search would refuse, or that cannot be counted or stored."""
    for name, value in budget.model_dump().items():
        if value is not None and value > MOST_OF_A_BUDGET:  # also infinity, which JSON and the database have not
            raise Problem(422, "budget", f"{name} must be at most {MOST_OF_A_BUDGET}.", field=f"budget.{name}")
    if budget.evaluations is None and budget.seconds is None:
        detail = "Give the run an end: evaluations or seconds. A target alone may never be reached."
        raise Problem(422, "budget", detail, field="budget")


def again(run: Run) -> Run:
    """Queue a new run that asks for the same."""
    same = ("graph", "kind", "device", "device_toml", "capacity", "settings", "budget", "seed")
    try:
        return _enqueue(Run(owner=run.owner, again_of=run, **{name: getattr(run, name) for name in same}))
    except IntegrityError as error:  # The run was deleted meanwhile.
        raise not_found() from error


def _enqueue(run: Run) -> Run:
    if storage_used(run.owner) >= run.owner.storage_quota_bytes:
        raise Problem(409, "storage-quota", "Your storage is full; delete runs or modules first.")
    files.require_disk(0)
    run.version = __version__
    now = timezone.now()
    run.queued = run.announced_at = now
    with transaction.atomic():
        run.rank = _last_rank(run.owner_id) + 1
        run.save(force_insert=True)
        events.append(run.pk, [state_entry(State.QUEUED, attempt=0)], guard={}, changes={})
        tasks.announce_on_commit(run.pk)
    return selectors.run_for(run.owner, run.pk)


def _last_rank(owner_id: int) -> int:
    return Run.objects.filter(owner_id=owner_id).aggregate(last=Max("rank"))["last"] or 0


def state_entry(state: str, *, attempt: int, reason: str = "") -> events.Entry:
    """Make the event that tells a new state."""
    return "state", {"state": str(state), "attempt": attempt, "reason": reason}


def _change(run: Run, entries: list[events.Entry], *, states: tuple[str, ...], changes: dict[str, Any]) -> bool:
    try:
        events.append(run.pk, entries, guard={"state__in": states}, changes=changes)
    except events.Replaced:
        return False
    return True


def stop(run: Run) -> Run:
    """Ask a run to stop: at once if it waits, else as soon as its search has written its last checkpoint."""
    now = timezone.now()
    waiting = {"state": State.STOPPED, "finished": now, "reason": "stopped", "stop_requested_at": None}
    entry = state_entry(State.STOPPED, attempt=run.attempt, reason="stopped")
    if not _change(run, [entry], states=(State.QUEUED,), changes=waiting):
        asked = {"state": State.STOPPING, "stop_requested_at": now}
        _change(run, [state_entry(State.STOPPING, attempt=run.attempt)], states=(State.RUNNING,), changes=asked)
    run = selectors.run_for(run.owner, run.pk)
    if run.state not in (State.STOPPED, State.STOPPING):
        raise Problem(409, "run-ended", f"The run has ended: it is {run.state}.")
    return run


def resume(run: Run) -> Run:
    """Queue a stopped run again; it goes on from its last checkpoint."""
    if not selectors.may_resume(run):
        raise Problem(409, "run-not-resumable", f"The run is {run.state} and cannot go on.")
    if storage_used(run.owner) >= run.owner.storage_quota_bytes:
        raise Problem(409, "storage-quota", "Your storage is full; delete runs or modules first.")
    now = timezone.now()
    with transaction.atomic():
        changes = {
            "state": State.QUEUED,
            "queued": now,
            "announced_at": now,
            "finished": None,
            "reason": "",
            "error": None,
            "stop_requested_at": None,
            "silent_attempts": 0,
            "thinned": None,
            "rank": _last_rank(run.owner_id) + 1,
        }
        entry = state_entry(State.QUEUED, attempt=run.attempt, reason="resumed")
        if not _change(run, [entry], states=(State.STOPPED, State.FAILED), changes=changes):
            raise Problem(409, "run-not-resumable", "The run's state has changed meanwhile.")
        tasks.announce_on_commit(run.pk)
    return selectors.run_for(run.owner, run.pk)


def move(run: Run, *, before: Run | None) -> Run:
    """Move a queued run before another of its owner's, or to the end of them."""
    with transaction.atomic():
        rows = Run.objects.select_for_update().filter(owner_id=run.owner_id, state=State.QUEUED)
        order: list[UUID] = list(rows.order_by("rank", "queued", "id").values_list("id", flat=True))
        if run.pk not in order:
            raise Problem(409, "run-not-queued", "Only a run that waits can be moved.")
        if before is not None and before.pk not in order:
            raise Problem(409, "run-not-queued", "The run to move before does not wait any more.", field="before")
        if before is None or before.pk != run.pk:
            order.remove(run.pk)
            order.insert(len(order) if before is None else order.index(before.pk), run.pk)
        for rank, run_id in enumerate(order, start=1):
            Run.objects.filter(pk=run_id).update(rank=rank)
    return selectors.run_for(run.owner, run.pk)


def delete(run: Run) -> None:
    """Delete a run, its log and its files. A search that still works on it finds the row gone and ends."""
    folder = run.folder
    with transaction.atomic():
        Run.objects.filter(pk=run.pk).delete()
        transaction.on_commit(lambda: files.remove_folder(folder))
