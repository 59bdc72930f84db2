"""The command lines as a shell sees them."""

from __future__ import annotations

import hashlib
import json
import signal
from pathlib import Path

import pytest

from accelsim.load import peak_bytes
from accelsim.mapping import validate
from accelsim.program import Program
from accelsim.writers.json import read_mapping
from search.commands import main
from tests.accelsim.programs import SMALL, random_program
from tests.search.conftest import ROOT, command, start, toml_of

FILES = sorted((ROOT / "tests/data/hlo").glob("*.hlo.gz"))
KEYS = {
    "method",
    "seed",
    "evaluations",
    "seconds",
    "latency_ps",
    "all_slow_ps",
    "lower_bound_ps",
    "baselines",
    "artifacts",
    "reason",
    "step",
}
HLO = """
HloModule tiny
ENTRY main {
  a = f32[512,512] parameter(0)
  b = f32[512,512] parameter(1)
  c = f32[512,512] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  d = f32[512,512] add(c, b)
  ROOT e = f32[512,512] multiply(d, c)
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.npz"
    random_program(3, steps=60, buffers=40).save(path)
    (tmp_path / "small.toml").write_text(toml_of(SMALL))
    return path


def memory(program: Path, *options: str, out: str = "out") -> list[str]:
    folder = program.parent
    fixed = [
        "memory",
        str(program),
        "--device",
        str(folder / "small.toml"),
        "--out",
        str(folder / out),
        "--workers",
        "1",
    ]
    return [*fixed, *options]


def test_it_ends_with_one_line_of_json_and_leaves_artifacts(program: Path) -> None:
    done = command(*memory(program, "--evaluations", "500", "--seed", "3"))
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    result = json.loads(line)
    assert result.keys() == KEYS
    assert (result["method"], result["seed"], result["evaluations"]) == ("annealing", 3, 500)
    assert result["baselines"].keys() == {"all_slow", "greedy", "xla_style"}
    assert result["lower_bound_ps"] <= result["latency_ps"] <= result["baselines"]["greedy"] <= result["all_slow_ps"]
    assert {item["name"] for item in result["artifacts"]} == {"mapping.json", "mapping.csv", "memory-map.svg"}
    for item in result["artifacts"]:
        data = Path(item["path"]).read_bytes()
        assert (item["bytes"], item["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    document = json.loads((program.parent / "out/mapping.json").read_text())
    assert document["recipe"]["seed"] == 3
    assert document["latency_ps"] == result["latency_ps"]
    loaded = Program.load(program)
    assert validate(loaded, SMALL, read_mapping(document, loaded)) == []
    assert "best" in done.stderr


def test_the_recipe_s_command_finds_the_same_mapping_again(program: Path) -> None:
    command(*memory(program, "--seconds", "1", "--set", "first_cycle=50"))
    recipe = json.loads((program.parent / "out/mapping.json").read_text())["recipe"]
    chosen = [f"--set={name}={value}" for name, value in recipe["settings"].items() if name != "method"]
    budget = ["--evaluations", str(recipe["evaluations"]), "--seed", str(recipe["seed"])]
    command(*memory(program, *budget, *chosen, out="again"))
    first, again = (json.loads((program.parent / out / "mapping.json").read_text()) for out in ("out", "again"))
    assert first["residencies"] == again["residencies"]
    assert first["recipe"]["command"] == again["recipe"]["command"]


def test_ctrl_c_leaves_a_checkpoint_from_which_the_result_is_the_same(program: Path) -> None:
    budget = ["--evaluations", "60000"]
    process = start(*memory(program, *budget, out="cut"))
    assert process.stderr is not None
    while "evaluations" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    stdout, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    cut = json.loads(stdout)
    assert cut["reason"] == "interrupted"
    assert cut["evaluations"] < 60_000
    assert (program.parent / "cut/mapping.json").exists()
    checkpoint = max((program.parent / "cut").glob("checkpoint-*.bin"))
    resumed = command(*memory(program, *budget, "--resume", str(checkpoint), out="cut"))
    assert resumed.returncode == 0, resumed.stderr
    whole = command(*memory(program, *budget, out="whole"))
    names = ("mapping.json", "mapping.csv", "memory-map.svg")
    for name in names:
        assert (program.parent / "cut" / name).read_bytes() == (program.parent / "whole" / name).read_bytes()
    assert json.loads(resumed.stdout)["latency_ps"] == json.loads(whole.stdout)["latency_ps"]


def test_the_number_of_workers_changes_nothing(program: Path) -> None:
    for workers in ("1", "3"):
        options = ["--evaluations", "3000", "--set", "chains=3", "--workers", workers]
        assert command(*memory(program, *options, out=workers)).returncode == 0
    one, three = ((program.parent / out / "mapping.json").read_bytes() for out in ("1", "3"))
    assert one == three


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--evaluations", "0"], "evaluations"),
        (["--evaluations", "9" * 23], "at most"),
        (["--evaluations", "5", "--seconds", "inf"], "at most"),
        (["--evaluations", "5", "--target", "9" * 30], "at most"),
        (["--target", "3"], "seconds"),
        (["--evaluations", "5", "--set", "chains=none"], "chains"),
        (["--evaluations", "5", "--set", "chains"], "NAME=VALUE"),
        (["--evaluations", "5", "--capacity", "-1"], "capacity"),
        (["--evaluations", "5", "--device", "abacus"], "abacus"),
        (["--evaluations", "5", "--seed", "-1"], "seed"),
        (["--evaluations", "5", "--workers", "0"], "workers"),
        (["--evaluations", "5", "--resume", "{folder}/small.toml"], "not a checkpoint"),
        (["--evaluations", "5", "--resume", "{folder}/nowhere.bin"], "nowhere.bin"),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(
    program: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    status = main(memory(program, *(option.format(folder=program.parent) for option in options)))
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert said in captured.err


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (b"HloModule broken\nENTRY main {\n  ROOT a = f32[2] what(", "line 3"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00", "error"),
        (b"PK\x03\x04 not a program", "not a stored program"),
    ],
)
@pytest.mark.parametrize("verb", ["inspect", "memory"])
def test_a_bad_file_is_one_line_and_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, data: bytes, said: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    options = ["--evaluations", "5", "--out", str(tmp_path / "out")] if verb == "memory" else []
    assert main([verb, str(path), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert said in captured.err
    assert not (tmp_path / "out").exists()


def test_unknown_options_are_exit_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["memory", "file", "--colour", "red"]) == 2
    assert main([]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = command("inspect", tmp_path / "nothing.hlo")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing.hlo" in done.stderr
    assert "Traceback" not in done.stderr


def test_inspect_prints_a_summary(tmp_path: Path, program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.hlo"
    path.write_text(HLO)
    assert main(["inspect", str(path)]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["name"], summary["parameters"]) == ("tiny", 2)
    assert summary["steps"] >= 1
    assert main(["inspect", str(program)]) == 0
    stored = json.loads(capsys.readouterr().out)
    assert stored["peak_bytes"] == peak_bytes(Program.load(program))


@pytest.mark.parametrize("method", ["all-slow", "greedy", "xla-style"])
def test_methods_that_end_by_themselves_need_no_budget(
    program: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    assert main(memory(program, "--method", method)) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["method"], result["reason"]) == (method, "complete")
    assert result["latency_ps"] == result["baselines"][method.replace("-", "_")]


def test_it_says_when_everything_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "tiny.hlo"
    path.write_text(HLO)
    assert main(["memory", str(path), "--method", "greedy", "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "everything fits" in captured.err
    assert "module.hlo" in {item["name"] for item in json.loads(captured.out)["artifacts"]}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["all-slow", "greedy", "xla-style", "annealing"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.split(".")[0])
def test_every_file_maps_with_every_method(
    path: Path, method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(path)]) == 0
    capacity = json.loads(capsys.readouterr().out)["peak_bytes"] // 4 // 4096 * 4096
    options = ["--device", "tpu-v5e", "--capacity", str(capacity), "--evaluations", "2000"]
    assert main(["memory", str(path), "--method", method, *options, "--out", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["lower_bound_ps"] <= result["latency_ps"] <= result["all_slow_ps"]
    assert result["baselines"]["greedy"] <= result["all_slow_ps"]
    if method == "annealing":
        assert result["latency_ps"] <= result["baselines"]["greedy"]
    assert "module.hlo" in {item["name"] for item in result["artifacts"]}
    assert (tmp_path / "module.hlo").read_text().startswith("HloModule")
