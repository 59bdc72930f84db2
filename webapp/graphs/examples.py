"""The modules that are there at the first start."""

from __future__ import annotations

import json
from pathlib import Path

from webapp.graphs import actions
from webapp.graphs.models import Graph

FOLDER = Path(__file__).parent / "examples"


def seed() -> int:
    """Store the examples that are missing; the workers prepare them. Say how many."""
    known = set(Graph.objects.filter(owner=None).values_list("example", flat=True))
    entries = json.loads((FOLDER / "examples.json").read_text())["examples"]
    missing = [entry for entry in entries if entry["name"] not in known]
    for entry in reversed(missing):  # the page lists the newest first
        actions.store(
            (FOLDER / entry["file"]).read_bytes(),
            owner=None,
            name=entry["file"],
            example=entry["name"],
            title=entry["title"],
            provenance=entry["provenance"],
            suggested_device=entry["device"],
            suggested_capacity=entry["capacity"],
        )
    return len(missing)
