"""``python -m search``."""

import os

# Before numpy: one thread a process, processes for the cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from search.commands import main  # noqa: E402

if __name__ == "__main__":
    raise SystemExit(main())
