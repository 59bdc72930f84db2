"""The built front end's one page."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from webapp.problems import not_found, problem_response


@require_safe
def index(request: HttpRequest, path: str = "") -> HttpResponse:
    """Give the page at every address that is none of the server's own: the page itself looks at the address."""
    file = settings.FRONTEND / "index.html"
    if not file.is_file():
        return HttpResponse("The front end is not built. Run: make setup\n", status=503, content_type="text/plain")
    response = HttpResponse(file.read_bytes(), content_type="text/html; charset=utf-8")
    response["Cache-Control"] = "no-cache"
    return response


def missing(request: HttpRequest, path: str = "") -> HttpResponse:
    """Answer for an address below /api/ that leads nowhere."""
    return problem_response(not_found())
