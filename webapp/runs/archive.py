"""All files of a run as one zip, with a manifest that says what they are and how they were made."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from typing import IO

from django.core.files.storage import default_storage

from webapp import files
from webapp.runs.models import Run

CHUNK = 1 << 20
EPOCH = (1980, 1, 1, 0, 0, 0)  # One date for all entries, so that the same files give the same zip.


def stem(run: Run) -> str:
    """Name a run's downloads."""
    return f"{files.safe_name(run.graph.name)}-{str(run.pk)[:8]}"


def manifest(run: Run) -> dict[str, object]:
    """Say how the run's files came about, so that they can be made again."""
    return {
        "version": 1,
        "run": str(run.pk),
        "made_with": f"Graphsmith {run.version}",
        "input": {"name": run.graph.name, "sha256": run.graph.blob_id},
        "device": run.device,
        "device_toml": run.device_toml,
        "capacity_bytes": run.capacity,
        "settings": run.settings,
        "budget": run.budget,
        "seed": run.seed,
        "state": run.state,
        "step": run.step,
        "evaluations": run.evaluations,
        "latency_ps": run.best,
        "lower_bound_ps": run.bound,
        "baselines_ps": run.baselines,
    }


def build(run: Run) -> tuple[IO[bytes], int]:
    """Write the zip to a temporary file that vanishes when it is closed; give it and its size."""
    stream = tempfile.TemporaryFile()
    contents: list[dict[str, object]] = []
    used: set[str] = set()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for artifact in run.artifacts.all():
            name = files.safe_name(artifact.name)
            while name in used:
                name = f"_{name}"
            used.add(name)
            digest = hashlib.sha256()
            with (
                default_storage.open(artifact.file) as source,
                archive.open(zipfile.ZipInfo(name, EPOCH), "w", force_zip64=True) as target,
            ):
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    target.write(chunk)
            contents.append({"name": name, "bytes": artifact.bytes, "sha256": digest.hexdigest()})
        document = manifest(run) | {"files": contents}
        archive.writestr(zipfile.ZipInfo("manifest.json", EPOCH), json.dumps(document, indent=2) + "\n")
        sums = "".join(f"{entry['sha256']}  {entry['name']}\n" for entry in contents)
        archive.writestr(zipfile.ZipInfo("SHA256SUMS", EPOCH), sums)
    size = stream.tell()
    stream.seek(0)
    return stream, size
