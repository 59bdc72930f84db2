"""The search methods that the page offers."""

from __future__ import annotations

from typing import Any

from search.memory.settings import catalogue, parse_settings


def outlines() -> list[dict[str, Any]]:
    """Describe each method: its settings' JSON Schema and defaults."""
    return catalogue()


def check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Fill in the defaults.

    Raises:
        InputError: a setting is unknown or out of range.
    """
    return parse_settings(settings).model_dump(mode="json")
