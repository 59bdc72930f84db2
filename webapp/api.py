"""The HTTP interface: all routes, who may call them, and how errors look."""

from __future__ import annotations

import logging
from typing import Any

from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema

from accelsim.errors import CompilerError, InputError
from webapp import __version__
from webapp.accounts.api import router as accounts
from webapp.accounts.doors import KeyDoor, SessionDoor
from webapp.graphs.api import router as graphs
from webapp.problems import Problem, ProblemOut, not_found, problem_response
from webapp.runs.api import router as runs
from webapp.runs.schemas import SocketOut

log = logging.getLogger("graphsmith.api")


class Api(NinjaAPI):
    """The API, whose published schema also describes the frames of the WebSocket."""

    def get_openapi_schema(self, *args: Any, **kwargs: Any) -> OpenAPISchema:
        schema = super().get_openapi_schema(*args, **kwargs)
        socket = SocketOut.model_json_schema(ref_template="#/components/schemas/{model}")
        problem = ProblemOut.model_json_schema()
        schema["components"]["schemas"] |= socket.pop("$defs") | {"SocketOut": socket, "ProblemOut": problem}
        return schema


api = Api(
    title="Graphsmith",
    version=__version__,
    description="Upload a program, search for a better one, download the result.",
    auth=[KeyDoor(), SessionDoor()],
    docs_url=None,
    openapi_url="openapi.json",
)
api.add_router("", accounts)
api.add_router("", graphs)
api.add_router("", runs)


@api.exception_handler(Problem)
def on_problem(request: HttpRequest, error: Problem) -> HttpResponse:
    return problem_response(error)


@api.exception_handler(AuthenticationError)
def on_anonymous(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    return problem_response(Problem(401, "login-needed", "Sign in first, or send an API key."))


@api.exception_handler(Http404)
def on_missing(request: HttpRequest, error: Http404) -> HttpResponse:
    return problem_response(not_found())


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem_response(Problem(error.status_code, "request", error.message))


@api.exception_handler(RequestDataTooBig)
def on_too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem_response(Problem(413, "request-too-big", "The request is too big."))


@api.exception_handler(MultiPartParserError)
@api.exception_handler(BadRequest)
@api.exception_handler(SuspiciousOperation)
def on_malformed(request: HttpRequest, error: Exception) -> HttpResponse:
    return problem_response(Problem(400, "request", f"The request cannot be read: {error}"))


@api.exception_handler(ValidationError)
def on_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    first = error.errors[0]
    # ("body", "body", "budget", "seconds"): where it was looked for, the parameter, then the path inside.
    path = [str(part) for part in first["loc"] if part not in ("body", "query", "path", "form", "file", "header")]
    field = ".".join(path) or None
    detail = f"{field}: {first['msg']}" if field else str(first["msg"])
    return problem_response(Problem(422, "invalid", detail, field=field))


@api.exception_handler(InputError)
def on_bad_input(request: HttpRequest, error: InputError) -> HttpResponse:
    return problem_response(Problem(422, error.code, error.message, line=error.line, column=error.column))


@api.exception_handler(CompilerError)
def on_compiler_error(request: HttpRequest, error: CompilerError) -> HttpResponse:
    if error.kind == "busy":
        problem = Problem(503, "compiler-busy", error.message, headers={"Retry-After": "5"})
    else:
        problem = Problem(422, f"compiler-{error.kind}", error.message)
    return problem_response(problem)


@api.exception_handler(Exception)
def on_bug(request: HttpRequest, error: Exception) -> HttpResponse:
    log.exception("%s %s failed", request.method, request.path, exc_info=error)
    return problem_response(Problem(500, "bug", "The server failed; its log says why."))
