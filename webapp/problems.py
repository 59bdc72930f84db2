"""Errors as problem objects (RFC 9457) with a stable code."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Schema


class ProblemOut(Schema):
    """What went wrong, for people (`title`, `detail`, `hint`) and for programs (`code`)."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    line: int | None = None
    column: int | None = None
    field: str | None = None
    hint: str | None = None


class Problem(Exception):
    """A request that cannot be served, and why."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        line: int | None = None,
        column: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.places = {"line": line, "column": column, "field": field, "hint": hint}
        self.headers = headers or {}

    def document(self) -> dict[str, Any]:
        """Give the problem as the object that is sent."""
        return {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "code": self.code,
            "detail": self.detail,
            **self.places,
        }


def problem_response(problem: Problem) -> HttpResponse:
    """Answer with a problem."""
    response = HttpResponse(
        json.dumps(problem.document()), status=problem.status, content_type="application/problem+json"
    )
    for name, value in problem.headers.items():
        response[name] = value
    return response


def not_found() -> Problem:
    """Say that there is nothing here: for what is missing, and for what belongs to somebody else."""
    return Problem(404, "not-found", "There is nothing here that you may see.")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Answer a form without a valid CSRF token."""
    return problem_response(Problem(403, "csrf", f"The CSRF token is missing or wrong. {reason}".strip()))
