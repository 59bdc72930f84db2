"""The event log's numbers: no gap, no double, and only the holder writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webapp.runs import actions, events, leases, selectors
from webapp.runs.models import Run, RunEvent


def seqs(run: Run) -> list[int]:
    return list(run.events.order_by("seq").values_list("seq", flat=True))


@pytest.mark.django_db(transaction=True)
def test_writers_at_once_leave_no_gap_and_no_double(make_run: Callable[..., Run]) -> None:
    run = make_run()

    def write(name: int) -> None:
        for number in range(20):
            entries: list[events.Entry] = [("log", {"message": f"{name}/{number}/{i}"}) for i in range(1 + number % 3)]
            events.append(run.pk, entries, guard={}, changes={})
        connection.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.refresh_from_db()
    assert seqs(run) == list(range(1, run.last_seq + 1))
    for name in range(4):
        messages = [e.data["message"] for e in run.events.filter(kind="log").order_by("seq")]
        mine = [m for m in messages if m.startswith(f"{name}/")]
        assert mine == sorted(mine, key=lambda m: [int(part) for part in m.split("/")])


@pytest.mark.django_db(transaction=True)
def test_a_reader_never_sees_a_number_before_those_below_it(make_run: Callable[..., Run]) -> None:
    run = make_run()
    done = threading.Event()

    def write() -> None:
        for _ in range(40):
            events.append(run.pk, [("log", {"message": "x"})] * 2, guard={}, changes={})
        connection.close()

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    cursor = 0
    while cursor < 241:
        for event in events.after(run.pk, cursor, limit=50):
            assert event.seq == cursor + 1
            cursor = event.seq
    done.set()
    for thread in threads:
        thread.join()


OPERATIONS = st.lists(
    st.sampled_from(["claim", "write", "write-as-old", "expire", "hand-back", "stop", "resume", "end", "roll-back"]),
    max_size=25,
)


@pytest.mark.django_db
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_whatever_happens_the_log_is_whole_and_the_fence_holds(
    make_run: Callable[..., Run], operations: list[str]
) -> None:
    run = make_run()
    held: list[Run] = []
    for operation in operations:
        _do(operation, run, held)
        run.refresh_from_db()
        assert seqs(run) == list(range(1, run.last_seq + 1))
        if run.state != "stopping":  # which waits for another holder when its own was lost
            assert (run.lease_owner != "") == (run.state == "running")
        attempts = list(run.events.order_by("seq").values_list("attempt", flat=True))
        assert attempts == sorted(attempts)
    states = [event.data["state"] for event in run.events.filter(kind="state").order_by("seq")]
    assert states[-1] == run.state
    run.delete()


def _do(operation: str, run: Run, held: list[Run]) -> None:
    line: list[events.Entry] = [("log", {"message": operation})]
    try:
        match operation:
            case "claim":
                claimed = leases.take(run.pk, f"worker/{len(held)}")
                if claimed is not None:
                    held.append(claimed)
            case "write" if held:
                events.append(run.pk, line, guard=leases.mine(held[-1]), changes={})
            case "write-as-old" if len(held) > 1:
                with pytest.raises(events.Replaced):
                    events.append(run.pk, line, guard=leases.mine(held[-2]), changes={})
            case "expire":
                Run.objects.filter(pk=run.pk, state__in=Run.HELD).update(lease_until="2000-01-01T00:00:00Z")
                leases.take_away_expired()
            case "hand-back" if held:
                leases.hand_back(held[-1], guard=leases.mine(held[-1]), reason="test", silent=False)
            case "stop":
                actions.stop(selectors.run_for(run.owner, run.pk))
            case "resume":
                actions.resume(selectors.run_for(run.owner, run.pk))
            case "end" if held:
                entry = actions.state_entry("finished", attempt=held[-1].attempt)
                changes: dict[str, Any] = {"state": "finished", "lease_owner": "", "lease_until": None}
                events.append(run.pk, [entry], guard=leases.mine(held[-1]), changes=changes)
            case "roll-back":
                with pytest.raises(ZeroDivisionError):
                    _fail_inside(run)
    except (events.Replaced, actions.Problem):
        pass  # Refused, as it should be in this state; the invariants are checked by the caller.


def _fail_inside(run: Run) -> None:
    with transaction.atomic():
        events.append(run.pk, [("log", {"message": "never"})], guard={}, changes={})
        raise ZeroDivisionError


@pytest.mark.django_db
def test_an_event_is_stored_once_whoever_writes_it(make_run: Callable[..., Run]) -> None:
    run = make_run()
    with pytest.raises(IntegrityError):
        RunEvent.objects.create(run=run, seq=1, attempt=0, kind="log", data={})
