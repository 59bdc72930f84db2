"""Cursor pagination: newest first, stable while new rows arrive."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from webapp.problems import Problem

Row = TypeVar("Row", bound=Model)


def page(rows: QuerySet[Row], *, cursor: str | None, limit: int) -> tuple[list[Row], str | None]:
    """Give up to `limit` rows after the cursor, and the next cursor if there are more."""
    rows = rows.order_by("-created", "-id")
    if cursor:
        created, key = _read(cursor)
        rows = rows.filter(Q(created__lt=created) | Q(created=created, id__lt=key))
    found = list(rows[: limit + 1])
    if len(found) <= limit:
        return found, None
    return found[:limit], _write(found[limit - 1])


def _write(row: Any) -> str:
    return base64.urlsafe_b64encode(f"{row.created.isoformat()} {row.pk}".encode()).decode()


def _read(cursor: str) -> tuple[datetime, UUID]:
    try:
        created, _, key = base64.urlsafe_b64decode(cursor.encode()).decode().partition(" ")
        moment = datetime.fromisoformat(created)
        if moment.tzinfo is None:
            raise ValueError("a time without a zone")
        return moment, UUID(key)
    except (ValueError, binascii.Error) as error:
        raise Problem(422, "cursor", "The cursor is not one that this list gave.", field="cursor") from error
