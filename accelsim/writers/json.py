"""A mapping as a versioned JSON document, and back. ``docs/mapping.schema.json`` describes it."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from accelsim.device import LIMITS, Device
from accelsim.errors import InputError
from accelsim.mapping import Mapping
from accelsim.program import Program
from accelsim.simulator import Simulator

VERSION = 1
KIND = "memory-mapping"

_TOP = ("version", "kind", "program", "device", "latency_ps", "recipe", "residencies", "values")
_RESIDENCY = ("buffer", "name", "size", "offset", "start", "ready", "end", "prefetched", "evict")


def mapping_document(program: Program, device: Device, mapping: Mapping, *, recipe: dict[str, Any]) -> dict[str, Any]:
    """Return the document of a legal mapping.

    Args:
        recipe: how the mapping was found (method, seed, budget, versions); stored as it is.
    """
    return {
        "version": VERSION,
        "kind": KIND,
        "program": _program(program),
        "device": {
            "name": device.name,
            "title": device.title,
            **{key: getattr(device, key) for key in LIMITS},
            "sources": dict(device.sources),
        },
        "latency_ps": Simulator(program, device).latency(mapping),
        "recipe": recipe,
        "residencies": [_residency(program, mapping, row) for row in range(mapping.residencies)],
        "values": _values(program, mapping),
    }


def read_mapping(document: object, program: Program) -> Mapping:
    """Read the mapping of the program from a document. Whether it is legal is `accelsim.mapping.validate`'s question.

    Raises:
        InputError: ``mapping-format``, naming the field that is wrong; ``mapping-program``, the document belongs to
            another program.
    """
    top = _object(document, _TOP, where="document")
    _expect(type(top["version"]) is int and top["version"] == VERSION, f"version is not {VERSION}")
    _expect(top["kind"] == KIND, f"kind is not {KIND!r}")
    if not _same(top["program"], _program(program)):
        raise InputError(f"the mapping is not one of program {program.name!r}", code="mapping-program")
    _check_device(top["device"])
    _whole(top["latency_ps"], where="latency_ps", least=0, most=2**63 - 1)
    _expect(isinstance(top["recipe"], dict), "recipe is not an object")
    _expect(isinstance(top["residencies"], list), "residencies is not a list")

    columns: dict[str, list[int]] = {key: [] for key in _RESIDENCY}
    for row, item in enumerate(top["residencies"]):
        where = f"residencies[{row}]"
        entry = _object(item, _RESIDENCY, where=where)
        buffer = _whole(entry["buffer"], where=f"{where}.buffer", least=0, most=program.buffers - 1)
        _expect(_same(entry["name"], program.buffer_name[buffer]), f"{where}.name is not the name of buffer {buffer}")
        size = int(program.buffer_size[buffer])
        _expect(_same(entry["size"], size), f"{where}.size is not the size of buffer {buffer}, {size}")
        _expect(isinstance(entry["prefetched"], bool), f"{where}.prefetched is not true or false")
        columns["buffer"].append(buffer)
        columns["offset"].append(_whole(entry["offset"], where=f"{where}.offset", least=0, most=2**62))
        columns["prefetched"].append(entry["prefetched"])
        for key in ("start", "ready", "end", "evict"):
            if key == "evict" and entry[key] is None:
                columns[key].append(-1)
            else:
                columns[key].append(_whole(entry[key], where=f"{where}.{key}", least=0, most=program.steps))
    del columns["name"], columns["size"]
    mapping = Mapping.from_residencies(program, **columns)

    values = _values(program, mapping)
    _expect(isinstance(top["values"], list), "values is not a list")
    _expect(len(top["values"]) == len(values), f"values has {len(top['values'])} entries, not {len(values)}")
    for index, (given, expected) in enumerate(zip(top["values"], values, strict=True)):
        _expect(_same(given, expected), f"values[{index}] is not what the residencies say: {expected}")
    return mapping


def fingerprint(program: Program) -> str:
    """Return a SHA-256 of what a mapping depends on: steps, accesses, buffers and values."""
    digest = hashlib.sha256()
    for name in program.__dataclass_fields__:
        if name in ("name", "notes"):
            continue
        value = getattr(program, name)
        digest.update(name.encode())
        if isinstance(value, np.ndarray):
            # Little-endian 64-bit, so that every machine computes the same.
            digest.update(value.astype("<i8").tobytes())
        else:
            for text in value:
                encoded = text.encode("utf-8", "surrogatepass")
                digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()


def _program(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "sha256": fingerprint(program),
        "steps": program.steps,
        "buffers": program.buffers,
        "values": len(program.value_name),
    }


def _residency(program: Program, mapping: Mapping, row: int) -> dict[str, Any]:
    buffer, evict = int(mapping.buffer[row]), int(mapping.evict[row])
    return {
        "buffer": buffer,
        "name": program.buffer_name[buffer],
        "size": int(program.buffer_size[buffer]),
        "offset": int(mapping.offset[row]),
        "start": int(mapping.start[row]),
        "ready": int(mapping.ready[row]),
        "end": int(mapping.end[row]),
        "prefetched": bool(mapping.prefetched[row]),
        "evict": None if evict < 0 else evict,
    }


def _values(program: Program, mapping: Mapping) -> list[dict[str, Any]]:
    """List for each value the offset at which it is defined, and the residencies that hold it later or earlier."""
    rows: dict[int, list[int]] = {}
    for row, buffer in enumerate(mapping.buffer.tolist()):
        rows.setdefault(buffer, []).append(row)
    start, end, ready = mapping.start.tolist(), mapping.end.tolist(), mapping.ready.tolist()
    values = []
    for name, buffer, born, dead in zip(
        program.value_name,
        program.value_buffer.tolist(),
        program.value_start.tolist(),
        program.value_end.tolist(),
        strict=True,
    ):
        held = [row for row in rows.get(buffer, ()) if start[row] < dead and born < end[row]]
        # An input is defined in slow memory, wherever its copies are.
        here = [] if program.buffer_input[buffer] and born == 0 else [r for r in held if ready[r] <= born < end[r]]
        offset = int(mapping.offset[here[0]]) if here else None
        values.append({"name": name, "buffer": buffer, "offset": offset, "residencies": held})
    return values


def _check_device(device: object) -> None:
    entry = _object(device, ("name", "title", *LIMITS, "sources"), where="device")
    for key in ("name", "title"):
        _expect(isinstance(entry[key], str), f"device.{key} is not a text")
    for key, most in LIMITS.items():
        _whole(entry[key], where=f"device.{key}", least=0, most=most)
    sources = entry["sources"]
    _expect(isinstance(sources, dict), "device.sources is not an object")
    for key, text in sources.items():
        _expect(key in LIMITS and isinstance(text, str), f"device.sources.{key!s:.60} is not the source of a figure")


def _object(value: object, keys: tuple[str, ...], *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"mapping: {where} is not an object", code="mapping-format")
    for key in keys:
        _expect(key in value, f"{where}.{key} is missing")
    for key in value:
        _expect(key in keys, f"{where} has an unknown key {key!r:.60}")
    return value


def _whole(value: object, *, where: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"mapping: {where} is not a whole number from {least} to {most}", code="mapping-format")
    return value


def _same(given: object, expected: object) -> bool:
    """Compare without Python's 1 == True == 1.0."""
    if type(given) is not type(expected):
        return False
    if isinstance(given, dict) and isinstance(expected, dict):
        return given.keys() == expected.keys() and all(_same(given[key], expected[key]) for key in expected)
    if isinstance(given, list) and isinstance(expected, list):
        return len(given) == len(expected) and all(map(_same, given, expected))
    return given == expected


def _expect(condition: bool, problem: str) -> None:
    if not condition:
        raise InputError(f"mapping: {problem}", code="mapping-format")
