from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from accelsim.errors import InputError
from search.executor import Cancelled, LocalExecutor, SupervisedExecutor

# An evaluator that squares; asked to, it waits, or kills itself as long as fewer processes than that have died of it.
EVALUATOR = """
import json, os, pathlib, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    request = asked["request"]
    time.sleep(request.get("wait", 0))
    if "deaths" in request:
        grave = pathlib.Path(request["grave"])
        died = len(list(grave.iterdir()))
        if died < request["deaths"]:
            (grave / str(died)).touch()
            os.kill(os.getpid(), 9)
    if request["number"] < 0:
        answer = {"error": {"code": "negative", "message": "too small"}}
    else:
        answer = {"result": {"square": request["number"] ** 2}}
    print(json.dumps({"index": asked["index"], **answer}), flush=True)
"""


@pytest.fixture
def pool(request: pytest.FixtureRequest) -> Iterator[LocalExecutor]:
    executor = LocalExecutor(workers=getattr(request, "param", 2), command=[sys.executable, "-c", EVALUATOR])
    yield executor
    executor.close()


def squares(executor: LocalExecutor, requests: list[dict[str, Any]]) -> list[int]:
    return [result["square"] for result in executor.submit(requests)]


@pytest.mark.parametrize("pool", [1, 3], indirect=True)
def test_results_come_in_the_order_of_the_requests(pool: LocalExecutor) -> None:
    requests = [{"number": number, "wait": 0.2 if number == 0 else 0} for number in range(8)]
    assert squares(pool, requests) == [number**2 for number in range(8)]


def test_a_request_whose_process_is_killed_is_asked_again(pool: LocalExecutor, tmp_path: Path) -> None:
    requests = [{"number": 3, "deaths": 2, "grave": str(tmp_path)}, {"number": 4}]
    assert squares(pool, requests) == [9, 16]
    assert len(list(tmp_path.iterdir())) == 2


def test_the_third_death_is_an_error(pool: LocalExecutor, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="3 times"):
        squares(pool, [{"number": 3, "deaths": 3, "grave": str(tmp_path)}])


def test_an_idle_process_that_was_killed_is_replaced(pool: LocalExecutor) -> None:
    assert squares(pool, [{"number": 2}]) == [4]
    (process,) = pool.processes()
    os.kill(process, signal.SIGKILL)
    assert squares(pool, [{"number": 5}]) == [25]


def test_a_refused_request_is_refused_here_too(pool: LocalExecutor) -> None:
    with pytest.raises(InputError, match="too small") as refused:
        squares(pool, [{"number": -1}])
    assert refused.value.code == "negative"


def test_closing_ends_the_processes(pool: LocalExecutor) -> None:
    squares(pool, [{"number": 1}])
    (process,) = pool.processes()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


def test_answers_of_a_supervisor_may_come_in_any_order_and_twice() -> None:
    sent: list[dict[str, Any]] = []
    executor = SupervisedExecutor(send=sent.append)
    for index in (2, 0, 2, 7, 1):
        executor.answer({"index": index, "result": {"value": index * 10}})
    results = executor.submit({"number": number} for number in range(3))
    assert [result["value"] for result in results] == [0, 10, 20]
    assert [message["index"] for message in sent] == [0, 1, 2]


def test_indices_go_on_from_round_to_round() -> None:
    sent: list[dict[str, Any]] = []
    executor = SupervisedExecutor(send=sent.append)
    executor.skip_to(5)
    for index in (5, 6):
        executor.answer({"index": index, "result": {}})
        list(executor.submit([{"number": 1}]))
    assert [message["index"] for message in sent] == [5, 6]


def test_waiting_for_a_supervisor_ends_when_it_is_gone() -> None:
    executor = SupervisedExecutor(send=lambda message: None)
    threading.Timer(0.05, executor.close).start()
    with pytest.raises(Cancelled):
        list(executor.submit([{"number": 1}]))
