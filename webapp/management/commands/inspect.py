"""Describe a module as JSON."""

from __future__ import annotations

import sys

from django.core.management.base import BaseCommand

from search.commands import main


class Command(BaseCommand):
    """The same as `python -m search inspect`; all arguments are its."""

    help = "Describe a module as JSON: see search inspect --help."

    def run_from_argv(self, argv: list[str]) -> None:
        # Without Django's own options, so that every argument means what it means to `python -m search inspect`.
        sys.exit(main(["inspect", *argv[2:]]))

    def handle(self, *args: str, **options: object) -> None:
        sys.exit(main(["inspect", *args]))
