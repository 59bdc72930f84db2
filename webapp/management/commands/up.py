"""Start everything."""

from __future__ import annotations

import os

from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.environment import listing
from webapp.settings import is_loopback


class Command(BaseCommand):
    help = "Start the server with all that it needs; Ctrl-C ends it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to bind to (default: this machine only)")
        parser.add_argument("--port", type=int, default=8000, help="port; 0 takes any free one")

    def handle(self, *args: object, host: str, port: int, **options: object) -> None:
        if not is_loopback(host) and not listing("ALLOWED_HOSTS"):
            raise CommandError(
                f"Bound to {host}, others can reach this server: set ALLOWED_HOSTS to the names that it answers for, "
                "and make users with `manage.py createuser NAME`."
            )
        os.environ["GRAPHSMITH_BIND"] = host
        from webapp.launcher import CannotStart, Launcher

        try:
            Launcher(host, port).run()
        except CannotStart as error:
            raise CommandError(str(error)) from error
