"""Look after leases and lost messages."""

from __future__ import annotations

import signal
import threading

from django.core.management.base import BaseCommand

from webapp.runs import reaper


class Command(BaseCommand):
    help = "Queue runs whose worker was lost, send lost messages again, and tidy up once a day; until SIGTERM."

    def handle(self, *args: object, **options: object) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        reaper.loop(stop=stop)
