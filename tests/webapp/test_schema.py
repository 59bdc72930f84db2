"""What the front end's types are generated from is what the server does."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from django.core.management import call_command

ROOT = Path(__file__).resolve().parents[2]


def test_the_published_schema_is_the_servers() -> None:
    stream = io.StringIO()
    call_command("export_openapi_schema", api="webapp.api.api", stdout=stream, sort_keys=True, indent=2)
    published = json.loads((ROOT / "frontend" / "src" / "api" / "schema.json").read_text())
    # Differs? python manage.py export_openapi_schema --api webapp.api.api --sorted --indent 2 --output THAT_FILE
    assert json.loads(stream.getvalue()) == published


def test_it_describes_the_sockets_frames() -> None:
    schemas = json.loads((ROOT / "frontend" / "src" / "api" / "schema.json").read_text())["components"]["schemas"]
    for name in ("StateFrame", "ProgressFrame", "BestFrame", "FinishedFrame", "ResetFrame", "SubscribeIn"):
        assert name in schemas


@pytest.mark.django_db
def test_the_migrations_are_complete() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
