"""`make bench` runs every short benchmark; `make bench NAME=…` runs or continues one."""

from __future__ import annotations

import datetime
import importlib
import json
import pkgutil
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import tests.benchmarks

RESULTS = Path("docs/benchmarks")
PACKAGES = ("numpy", "numba", "jaxlib", "Django", "celery", "torch")


def modules() -> dict[str, ModuleType]:
    names = [info.name for info in pkgutil.iter_modules(tests.benchmarks.__path__) if not info.name.startswith("_")]
    return {name: importlib.import_module(f"tests.benchmarks.{name}") for name in names}


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(title: str, record: dict) -> str:
    rows = record["rows"]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [f"# {title}", "", f"`{record['command']}`, {record['date']}, {record['machine']}", ""]
    lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(cell(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def run(name: str, module: ModuleType) -> None:
    path = RESULTS / f"{name}.json"
    done = json.loads(path.read_text())["rows"] if module.LONG and path.exists() else []
    record = {
        "command": f"make bench NAME={name}",
        "date": datetime.date.today().isoformat(),
        "machine": f"{processor()}, Python {platform.python_version()}",
        "versions": {package: version(package) for package in PACKAGES},
        "rows": list(done),
    }
    for row in module.rows(done):
        record["rows"].append(row)
        print(name, json.dumps(row), flush=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        path.with_suffix(".md").write_text(table(module.TITLE, record))


def main() -> int:
    found = modules()
    wanted = sys.argv[1:] or [name for name, module in found.items() if not module.LONG]
    for name in wanted:
        if name not in found:
            print(f"no benchmark {name}; there are: {', '.join(found)}", file=sys.stderr)
            return 2
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        run(name, found[name])
    return 0


if __name__ == "__main__":
    sys.exit(main())
