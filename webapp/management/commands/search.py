"""Search from the command line."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from search.commands import main


class Command(BaseCommand):
    """The same as `python -m search`; all arguments are its."""

    help = "Search from the command line: see search --help."

    def run_from_argv(self, argv: list[str]) -> None:
        # Without Django's own options, so that every argument means what it means to `python -m search`.
        sys.exit(main(argv[2:]))

    def handle(self, *args: str, **options: object) -> None:
        sys.exit(main(list(args)))
