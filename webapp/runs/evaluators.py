"""The worker's side of evaluations: one long-lived child per worker process."""

from __future__ import annotations

import logging
from functools import cache

from django.conf import settings
from django.db.models import F

from webapp.children import ChildDied, LineChild
from webapp.runs.models import Evaluation

log = logging.getLogger("graphsmith.evaluators")

MAX_TRIES = 5


@cache
def evaluator() -> LineChild:
    """Give this process's evaluator."""
    return LineChild([*settings.SEARCH_COMMAND, "evaluate"], memory_bytes=settings.RUN_MEMORY_BYTES, tie=True)


def evaluate(evaluation_id: int) -> None:
    """Do one evaluation that still wants a result, and store it. The first result counts; all are equal."""
    wanted = Evaluation.objects.filter(pk=evaluation_id, result__isnull=True, error="")
    while wanted.update(tries=F("tries") + 1):
        row = wanted.first()
        if row is None:
            return
        try:
            answer = evaluator().ask({"index": row.index, "request": row.request}, seconds=settings.EVALUATE_SECONDS)
            if answer.get("index") != row.index or not isinstance(answer.get("result", answer.get("error")), dict):
                evaluator().close()
                raise ChildDied("it answered something else")
        except ChildDied as error:
            log.warning("evaluation %s of run %s: the evaluator is lost: %s", row.index, row.run_id, error)
            if row.tries >= MAX_TRIES:
                wanted.update(error=f"{row.tries} tries were in vain; at the last one {error}")
        else:
            if "error" in answer:
                wanted.update(error=str(answer["error"]["message"]))
            else:
                wanted.update(result=answer["result"])
