"""Drop what nobody needs any more."""

from __future__ import annotations

import json

from django.core.management.base import BaseCommand

from webapp.runs import retention


class Command(BaseCommand):
    help = "Thin the events of old runs, and drop old caches and files without an owner; the reaper does it daily."

    def handle(self, *args: object, **options: object) -> None:
        self.stdout.write(json.dumps(retention.tidy()))
