"""Read settings from the environment; a value that cannot be used stops the start."""

from __future__ import annotations

import os

from django.core.exceptions import ImproperlyConfigured


def text(name: str, default: str = "") -> str:
    """Read a text, stripped."""
    return os.environ.get(name, default).strip()


def listing(name: str) -> list[str]:
    """Read a comma-separated list without empty entries."""
    return [entry.strip() for entry in text(name).split(",") if entry.strip()]


def integer(name: str, default: int, *, least: int = 0, most: int = 2**62) -> int:
    """Read a whole number within bounds."""
    value = text(name)
    if not value:
        return default
    try:
        number = int(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a whole number, not {value!r}") from error
    if not least <= number <= most:
        raise ImproperlyConfigured(f"{name} must be between {least} and {most}, not {number}")
    return number


def seconds(name: str, default: float, *, least: float = 0.0) -> float:
    """Read a duration in seconds."""
    value = text(name)
    if not value:
        return default
    try:
        number = float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} must be a number of seconds, not {value!r}") from error
    if not least <= number <= 10**9:
        raise ImproperlyConfigured(f"{name} must be at least {least} seconds, not {value}")
    return number


def flag(name: str, default: bool) -> bool:
    """Read yes or no."""
    value = text(name).lower()
    if not value:
        return default
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise ImproperlyConfigured(f"{name} must be 1 or 0, not {value!r}")


def choice(name: str, default: str, *, allowed: tuple[str, ...]) -> str:
    """Read one of a few words."""
    value = text(name) or default
    if value not in allowed:
        raise ImproperlyConfigured(f"{name} must be one of {', '.join(allowed)}, not {value!r}")
    return value
