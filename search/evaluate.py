"""A long-lived evaluator: JSON requests in, JSON results out. Nothing here knows who asks."""

from __future__ import annotations

import json
import signal
import sys
from functools import lru_cache
from typing import Any, TextIO

from accelsim.errors import InputError
from search.memory.annealing import advance
from search.memory.problem import Problem, load_problem
from search.memory.settings import Annealing, parse_settings


@lru_cache(maxsize=4)
def _problem(where: str) -> Problem:
    return load_problem(json.loads(where))


def evaluate(request: dict[str, Any]) -> dict[str, Any]:
    """Answer one self-contained request.

    ``memory.anneal``: advance ``chain`` of the problem at ``where`` by ``moves`` moves under ``settings``.

    Raises:
        InputError: the request is of an unknown kind, or what it names cannot be used.
    """
    if request.get("kind") != "memory.anneal":
        raise InputError(f"there is no evaluation of kind {request.get('kind')!r:.60}", code="evaluation-kind")
    settings = parse_settings(request["settings"])
    if not isinstance(settings, Annealing):
        raise InputError("only annealing asks for memory.anneal", code="evaluation-kind")
    problem = _problem(json.dumps(request["where"], sort_keys=True))
    return advance(problem, settings, request["chain"], request["moves"])


def serve(requests: TextIO, results: TextIO) -> int:
    """Answer one request a line until the input ends; return the exit status.

    A line is ``{"index", "request"}``; its answer is ``{"index", "result"}`` or ``{"index", "error"}``.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the asker decides what ends
    for line in requests:
        asked = json.loads(line)
        try:
            answer = {"index": asked["index"], "result": evaluate(asked["request"])}
        except InputError as error:
            answer = {"index": asked["index"], "error": {"code": error.code, "message": error.message}}
        results.write(json.dumps(answer, separators=(",", ":")) + "\n")
        results.flush()
    return 0


def main() -> int:
    """Serve standard input and output."""
    try:
        return serve(sys.stdin, sys.stdout)
    except BrokenPipeError:
        return 0
