"""What a program costs on an accelerator. Imports no Django."""

import hashlib
import os
from pathlib import Path


def _compiled_code_folder() -> Path:
    """Name a cache folder after the sources of everything that is compiled.

    numba looks only at the file of a cached function, not at the functions that it calls in other files: without this,
    a change of the simulator would leave solvers running the old one.
    """
    digest = hashlib.sha256()
    for package in ("accelsim", "search"):
        for path in sorted((Path(__file__).parent.parent / package).rglob("*.py")):
            digest.update(path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "graphsmith" / "numba" / digest.hexdigest()[:16]


os.environ.setdefault("NUMBA_CACHE_DIR", str(_compiled_code_folder()))
