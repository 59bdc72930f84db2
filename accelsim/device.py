"""What the chip can do: rates, fast memory, and where each figure comes from."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accelsim.errors import InputError

FOLDER = Path(__file__).parent / "devices"

# Largest accepted figure of each key: far beyond any chip, small enough that a unit mistake is caught.
LIMITS = {
    "flops_per_second": 10**21,
    "slow_bytes_per_second": 10**18,
    "fast_read_bytes_per_second": 10**18,
    "fast_write_bytes_per_second": 10**18,
    "dma_bytes_per_second": 10**18,
    "dma_latency_ps": 10**15,
    "capacity_bytes": 2**50,
    "alignment_bytes": 2**30,
    "memory_space": 255,
}
ZERO_ALLOWED = frozenset({"dma_latency_ps"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One chip with a slow and a fast memory and one DMA engine between them."""

    name: str
    title: str
    flops_per_second: int
    slow_bytes_per_second: int
    fast_read_bytes_per_second: int  # at least the slow rate, so that fast memory never costs more
    fast_write_bytes_per_second: int  # at least the slow rate
    dma_bytes_per_second: int
    dma_latency_ps: int  # added to each copy, in the queue
    capacity_bytes: int  # of fast memory
    alignment_bytes: int  # of offsets in fast memory
    memory_space: int  # how XLA prints fast memory in a layout: S(n)
    sources: dict[str, str] = field(default_factory=dict)  # figure -> where it comes from

    def with_capacity(self, capacity_bytes: int) -> Device:
        """Return the same chip with another size of fast memory.

        Raises:
            InputError: the size is not a positive number of bytes that holds one aligned unit.
        """
        figures: dict[str, Any] = {"capacity_bytes": capacity_bytes, "alignment_bytes": self.alignment_bytes}
        capacity = _figure(figures, "capacity_bytes", where="capacity")
        device = dataclasses.replace(self, capacity_bytes=capacity)
        _check_together(device, where="capacity")
        return device


def device_names() -> tuple[str, ...]:
    """Name the chips that come with accelsim, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_device(name_or_path: str | Path, *, capacity_bytes: int | None = None) -> Device:
    """Load a chip by name (a text), or from a TOML file (a `Path`).

    A text never opens a file, so that a name may come from anybody.

    Raises:
        InputError: there is no such chip or file, or a figure in it is wrong.
    """
    if isinstance(name_or_path, Path):
        path = name_or_path
    elif name_or_path in device_names():
        path = FOLDER / f"{name_or_path}.toml"
    else:
        known = ", ".join(device_names())
        raise InputError(f"there is no device {name_or_path!r:.80}; known are {known}", code="device-name")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"device file {path.name} cannot be read: {reason}", code="device-file") from error
    return parse_device(text, capacity_bytes=capacity_bytes)


def parse_device(toml_text: str, *, capacity_bytes: int | None = None) -> Device:
    """Read a chip from TOML.

    Raises:
        InputError: names the key that is unknown, missing, of the wrong type or out of range.
    """
    try:
        table = tomllib.loads(toml_text)
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
        raise InputError(f"the device is not TOML: {error}", code="device-toml") from error
    known = {entry.name for entry in dataclasses.fields(Device)}
    for key in table:
        if key not in known:
            raise InputError(f"device: unknown key {key!r}; known are {', '.join(sorted(known))}", code="device-key")
    figures = {key: _figure(table, key, where="device") for key in LIMITS}
    texts = {key: _text(table, key) for key in ("name", "title")}
    device = Device(**texts, **figures, sources=_sources(table))  # type: ignore[arg-type]
    _check_together(device, where="device")
    return device if capacity_bytes is None else device.with_capacity(capacity_bytes)


def _figure(table: dict[str, Any], key: str, *, where: str) -> int:
    if key not in table:
        raise InputError(f"{where}: key {key!r} is missing", code="device-key")
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{where}: {key} must be a number, not {type(value).__name__}", code="device-type")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{where}: {key} must be finite, not {value}", code="device-range")
        if not value.is_integer():
            raise InputError(f"{where}: {key} must be a whole number, not {value}", code="device-range")
    least = 0 if key in ZERO_ALLOWED else 1
    if value < least:
        raise InputError(f"{where}: {key} must be at least {least}, not {_short(value)}", code="device-range")
    if value > LIMITS[key]:
        raise InputError(f"{where}: {key} must be at most {LIMITS[key]}, not {_short(value)}", code="device-range")
    return int(value)


def _short(value: float) -> str:
    # A TOML integer has no limit, and str() of a huge one is refused by Python.
    return f"{value}" if abs(value) < 10**30 else "a number of more than 30 digits"


def _text(table: dict[str, Any], key: str) -> str:
    if key not in table:
        raise InputError(f"device: key {key!r} is missing", code="device-key")
    value = table[key]
    if not isinstance(value, str) or not value.strip() or len(value) > 200:
        raise InputError(f"device: {key} must be a text of 1 to 200 characters", code="device-type")
    return value


def _sources(table: dict[str, Any]) -> dict[str, str]:
    sources = table.get("sources", {})
    if not isinstance(sources, dict):
        raise InputError("device: sources must be a table of texts", code="device-type")
    for key, value in sources.items():
        if key not in LIMITS:
            raise InputError(f"device: unknown key 'sources.{key}'", code="device-key")
        if not isinstance(value, str):
            raise InputError(f"device: sources.{key} must be a text", code="device-type")
    return dict(sources)


def _check_together(device: Device, *, where: str) -> None:
    for key in ("fast_read_bytes_per_second", "fast_write_bytes_per_second"):
        if getattr(device, key) < device.slow_bytes_per_second:
            raise InputError(f"{where}: {key} must be at least slow_bytes_per_second", code="device-range")
    if device.capacity_bytes < device.alignment_bytes:
        text = f"{where}: capacity_bytes must be at least alignment_bytes ({device.alignment_bytes})"
        raise InputError(text, code="device-range")
