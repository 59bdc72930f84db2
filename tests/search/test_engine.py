from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest

from accelsim.errors import InputError
from search.engine import Budget, Meter, pack_checkpoint, parse_budget, store_checkpoint, unpack_checkpoint


def a_checkpoint() -> bytes:
    return pack_checkpoint({"identity": "mine", "step": 3}, {"order": np.arange(5, dtype=np.int32)})


def test_a_checkpoint_comes_back_as_it_was() -> None:
    header, arrays = unpack_checkpoint(a_checkpoint(), identity="mine")
    assert header == {"identity": "mine", "step": 3}
    assert arrays["order"].tolist() == [0, 1, 2, 3, 4]
    assert arrays["order"].dtype == np.int32


def test_the_same_state_gives_the_same_bytes() -> None:
    assert a_checkpoint() == a_checkpoint()


@pytest.mark.parametrize("place", [0, 25, 90, 200, -1])
def test_it_refuses_a_checkpoint_with_one_changed_byte(place: int) -> None:
    data = bytearray(a_checkpoint())
    data[place] ^= 1
    with pytest.raises(InputError) as refused:
        unpack_checkpoint(bytes(data), identity="mine")
    assert refused.value.code == "checkpoint"


@pytest.mark.parametrize("data", [b"", b"\n", a_checkpoint()[:100], b"PK\x03\x04 some zip"])
def test_it_refuses_what_is_no_whole_checkpoint(data: bytes) -> None:
    with pytest.raises(InputError):
        unpack_checkpoint(data, identity="mine")


def test_it_refuses_the_checkpoint_of_another_search() -> None:
    with pytest.raises(InputError, match="another search"):
        unpack_checkpoint(a_checkpoint(), identity="yours")


def test_it_refuses_a_checkpoint_of_another_version() -> None:
    with pytest.raises(InputError, match="another version"):
        unpack_checkpoint(a_checkpoint().replace(b"checkpoint 1 ", b"checkpoint 9 ", 1), identity="mine")


def test_it_keeps_the_newest_two_checkpoints(tmp_path: Path) -> None:
    for step in (1, 2, 10, 11):
        store_checkpoint(tmp_path, b"data", step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-000000010.bin",
        "checkpoint-000000011.bin",
    ]


def test_a_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = store_checkpoint(tmp_path, b"good", step=1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        store_checkpoint(tmp_path, b"bad", step=2)
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]
    assert kept.read_bytes() == b"good"


def test_the_budget_says_why_a_search_stops() -> None:
    meter = Meter(Budget(evaluations=10, target=5), evaluations=9)
    assert meter.reason(6) is None
    assert meter.reason(5) == "target"
    meter.evaluations = 10
    assert meter.reason(6) == "evaluations"
    assert Meter(Budget(seconds=10), seconds=11).reason(0) == "seconds"


def test_seconds_include_the_attempts_before() -> None:
    assert Meter(Budget(), seconds=100).seconds >= 100


@pytest.mark.parametrize("budget", [{}, {"target": 3}, {"evaluations": 0}, {"seconds": -1}, {"minutes": 3}])
def test_it_refuses_a_budget_that_is_wrong_or_never_ends(budget: dict[str, int]) -> None:
    with pytest.raises(InputError) as refused:
        parse_budget(budget)
    assert refused.value.code == "budget"
