"""A stored program comes back as it was, and nothing else is taken for one."""

import dataclasses
import io

import numpy as np
import pytest

from accelsim.errors import InputError
from accelsim.program import Program
from tests.accelsim.programs import random_program


def test_a_stored_program_comes_back_as_it_was(tmp_path):
    program = random_program(7)
    program.save(tmp_path / "program.npz")
    again = Program.load(tmp_path / "program.npz")
    for field in dataclasses.fields(Program):
        before, after = getattr(program, field.name), getattr(again, field.name)
        assert np.array_equal(before, after) and type(before) is type(after), field.name
        if isinstance(before, np.ndarray):
            assert before.dtype == after.dtype, field.name


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "another-archive", "no-header", "lacks-a-column"])
def test_it_refuses_what_is_not_a_stored_program(tmp_path, damage):
    path = tmp_path / "program.npz"
    random_program(7).save(path)
    data = path.read_bytes()
    if damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("HloModule m")
    elif damage == "truncated":
        path.write_bytes(data[: len(data) // 2])
    else:
        with np.load(io.BytesIO(data)) as archive:
            columns = {name: archive[name] for name in archive.files}
        if damage == "another-archive":
            columns = {"x": np.arange(3)}
        elif damage == "no-header":
            del columns["header"]
        else:
            del columns["buffer_size"]
        with path.open("wb") as stream:
            np.savez(stream, **columns)
    with pytest.raises(InputError):
        Program.load(path)


def test_it_refuses_a_program_of_another_version(tmp_path, monkeypatch):
    monkeypatch.setattr("accelsim.program.FORMAT_VERSION", 999)
    random_program(7).save(tmp_path / "program.npz")
    monkeypatch.undo()
    with pytest.raises(InputError, match="another version"):
        Program.load(tmp_path / "program.npz")
