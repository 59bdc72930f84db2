"""``python -m search run`` as its supervisor sees it."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accelsim.mapping import Mapping, validate
from accelsim.program import Program
from search.evaluate import evaluate
from tests.accelsim.programs import SMALL
from tests.search.conftest import start

WriteSpec = Callable[..., Path]


@pytest.fixture
def run() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def launch(spec: Path) -> subprocess.Popen[str]:
        started.append(start("run", str(spec)))
        return started[-1]

    yield launch
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


Launch = Callable[[Path], subprocess.Popen[str]]


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def until(process: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    for message in lines(process):
        if message["type"] == kind:
            return message
    raise AssertionError(f"no {kind}; {process.stderr.read() if process.stderr else ''}")


def say(process: subprocess.Popen[str], message: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()


def files(finished: dict[str, Any]) -> dict[str, str]:
    return {item["name"]: item["sha256"] for item in finished["artifacts"]}


def test_it_tells_the_whole_story(spec: WriteSpec, run: Launch, tmp_path: Path) -> None:
    process = run(spec(budget={"evaluations": 3000}, checkpoint_seconds=0))
    story = list(lines(process))
    assert process.wait() == 0
    started, *middle, finished = story
    assert started["type"] == "started"
    assert started["baselines"].keys() == {"all_slow", "greedy", "xla_style"}
    assert 0 < started["bound"] <= started["baselines"]["greedy"]
    assert started["fits"] is False

    assert {message["type"] for message in middle} == {"progress", "best", "checkpoint"}
    progress = [message for message in middle if message["type"] == "progress"]
    assert progress[-1]["evaluations"] == 3000
    assert [message["best"] for message in progress] == sorted((m["best"] for m in progress), reverse=True)
    assert all(message["metrics"].keys() >= {"temperature_ps"} for message in progress)

    best = [message for message in middle if message["type"] == "best"][-1]
    program = Program.load(tmp_path / "program.npz")
    assert validate(program, SMALL, Mapping.from_residencies(program, **best["map"])) == []

    last = [message for message in middle if message["type"] == "checkpoint"][-1]
    assert hashlib.sha256(Path(last["path"]).read_bytes()).hexdigest() == last["sha256"]
    assert len(list((tmp_path / "run").glob("checkpoint-*.bin"))) == 2

    assert finished["type"] == "finished"
    assert (finished["reason"], finished["evaluations"]) == ("evaluations", 3000)
    assert finished["latency_ps"] == best["latency_ps"] == progress[-1]["best"]
    assert files(finished).keys() == {"mapping.json", "mapping.csv", "memory-map.svg"}
    for item in finished["artifacts"]:
        data = Path(item["path"]).read_bytes()
        assert (item["bytes"], item["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())


def whole(spec: WriteSpec, run: Launch, **changes: Any) -> dict[str, Any]:
    return until(run(spec("whole", **changes)), "finished")


def test_stop_leaves_artifacts_and_resume_ends_at_the_same_bytes(spec: WriteSpec, run: Launch, tmp_path: Path) -> None:
    process = run(spec("cut", checkpoint_seconds=0))
    until(process, "checkpoint")
    say(process, {"type": "stop"})
    stopped = until(process, "finished")
    assert process.wait() == 0
    assert stopped["reason"] == "stopped"
    assert stopped["evaluations"] < 20_000
    assert "mapping.json" in files(stopped)
    checkpoint = max((tmp_path / "cut").glob("checkpoint-*.bin"))
    resumed = until(run(spec("resumed", checkpoint=str(checkpoint))), "finished")
    assert resumed["seconds"] > stopped["seconds"]
    expected = whole(spec, run)
    assert files(resumed) == files(expected)
    assert (resumed["step"], resumed["evaluations"]) == (expected["step"], expected["evaluations"])


@pytest.mark.parametrize("checkpoints", [1, 3])
def test_a_killed_search_resumes_to_the_same_bytes(
    spec: WriteSpec, run: Launch, tmp_path: Path, checkpoints: int
) -> None:
    process = run(spec("killed", checkpoint_seconds=0))
    for _ in range(checkpoints):
        until(process, "checkpoint")
    process.kill()
    process.wait()
    checkpoint = max((tmp_path / "killed").glob("checkpoint-*.bin"))
    resumed = until(run(spec("resumed", checkpoint=str(checkpoint))), "finished")
    assert files(resumed) == files(whole(spec, run))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_polite_signal_stops_it_like_the_message(spec: WriteSpec, run: Launch, number: int) -> None:
    process = run(spec())
    until(process, "progress")
    process.send_signal(number)
    assert until(process, "finished")["reason"] == "stopped"
    assert process.wait() == 0


def test_without_its_supervisor_it_leaves_a_checkpoint_and_status_3(
    spec: WriteSpec, run: Launch, tmp_path: Path
) -> None:
    process = run(spec(budget={"seconds": 600}, checkpoint_seconds=600))
    until(process, "progress")
    assert process.stdin is not None
    process.stdin.close()
    process.stdin = None
    assert process.wait(timeout=60) == 3
    assert len(list((tmp_path / "run").glob("checkpoint-*.bin"))) == 1


def test_a_supervisor_evaluates_in_any_order_with_the_same_result(spec: WriteSpec, run: Launch) -> None:
    changes = {"budget": {"evaluations": 13_000}, "settings": {"method": "annealing", "chains": 3}}
    process = run(spec("far", executor="supervisor", **changes))
    waiting: list[dict[str, Any]] = []
    asked: list[int] = []
    for message in lines(process):
        if message["type"] == "finished":
            assert files(message) == files(whole(spec, run, **changes))
            break
        if message["type"] == "evaluate":
            asked.append(message["index"])
            waiting.append(message)
            if len(waiting) == 3:
                for question in reversed(waiting):
                    answer = {"type": "evaluated", "index": question["index"], "result": evaluate(question["request"])}
                    say(process, answer)
                    say(process, answer)
                waiting.clear()
    assert process.wait() == 0
    assert asked == list(range(len(asked)))
    assert len(asked) >= 6


def test_it_stops_while_it_waits_for_an_answer(spec: WriteSpec, run: Launch) -> None:
    process = run(spec(executor="supervisor"))
    question = until(process, "evaluate")
    say(process, {"type": "stop"})
    finished = until(process, "finished")
    assert (question["index"], finished["reason"], finished["step"]) == (0, "stopped", 0)
    assert process.wait() == 0


def test_a_resumed_search_asks_under_the_numbers_of_the_first(spec: WriteSpec, run: Launch, tmp_path: Path) -> None:
    process = run(spec("first", executor="supervisor", checkpoint_seconds=0))
    for _ in range(2):
        question = until(process, "evaluate")
        say(process, {"type": "evaluated", "index": question["index"], "result": evaluate(question["request"])})
    questions = [until(process, "evaluate") for _ in range(2)]
    process.kill()
    checkpoint = max((tmp_path / "first").glob("checkpoint-*.bin"))
    again = run(spec("again", executor="supervisor", checkpoint=str(checkpoint)))
    assert [until(again, "evaluate") for _ in range(2)] == questions


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"method": "magic"}}, "magic"),
        ({"budget": {}}, "budget"),
        ({"device": "abacus"}, "abacus"),
        ({"device": "flops_per_second = 3\n"}, "slow_bytes_per_second"),
        ({"capacity": 0}, "capacity"),
        ({"colour": "red"}, "colour"),
        ({"seed": -1}, "seed"),
        ({"program": "/nowhere/program.npz"}, "program.npz"),
    ],
)
def test_a_bad_specification_is_an_error_message_and_status_2(
    spec: WriteSpec, run: Launch, changes: dict[str, Any], said: str
) -> None:
    process = run(spec(**changes))
    error = until(process, "error")
    assert said in error["message"]
    assert error["code"]
    assert process.wait() == 2


def test_a_damaged_checkpoint_is_bad_input(spec: WriteSpec, run: Launch, tmp_path: Path) -> None:
    path = tmp_path / "damaged.bin"
    path.write_bytes(b"graphsmith-checkpoint 1 " + b"0" * 64 + b"\nrubbish")
    process = run(spec(checkpoint=str(path)))
    assert until(process, "error")["code"] == "checkpoint"
    assert process.wait() == 2
