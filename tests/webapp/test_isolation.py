"""What the web process and the workers' parent load: no compiler, no torch, no numba."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "dgl", "jax", "jaxlib", "numba", "llvmlite")
PROGRAM = """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
{what}
print(*sorted(name for name in {heavy!r} if name in sys.modules))
"""
PARTS = {
    "web": "import webapp.asgi; import webapp.urls",
    "worker": "from webapp.celery import app; app.loader.import_default_modules()",
    "launcher": "import django; django.setup(); import webapp.launcher",
    "reaper": "import django; django.setup(); import webapp.runs.reaper",
}


@pytest.mark.parametrize("part", PARTS)
def test_it_loads_nothing_that_must_not_be_forked(part: str) -> None:
    program = PROGRAM.format(what=PARTS[part], heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
