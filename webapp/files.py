"""Files on their way out and on the disk. Everything goes through Django's storage."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.files.storage import default_storage
from django.http import HttpResponse, StreamingHttpResponse

from webapp.problems import Problem

CHUNK = 1 << 18
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def safe_name(name: str) -> str:
    """Turn a name that somebody gave into one that is a plain file name everywhere, zip files included."""
    plain = _UNSAFE.sub("_", name).strip("._")[:100]
    return plain or "file"


def download(stream: IO[bytes], *, name: str, size: int, content_type: str) -> StreamingHttpResponse:
    """Send an open file as an attachment, a chunk at a time; it is closed at the end."""

    async def chunks() -> AsyncIterator[bytes]:
        try:
            while chunk := await sync_to_async(stream.read)(CHUNK):
                yield chunk
        finally:
            stream.close()

    response = StreamingHttpResponse(chunks(), content_type=content_type)
    as_attachment(response, name=name)
    response["Content-Length"] = str(size)
    return response


def as_attachment(response: HttpResponse | StreamingHttpResponse, *, name: str) -> None:
    """Mark a response as a file to save, which no browser may show or run."""
    response["Content-Disposition"] = f"attachment; filename=\"{safe_name(name)}\"; filename*=UTF-8''{quote(name)}"
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"


def local_path(name: str) -> Path:
    """Say where a stored file or folder lies on this machine; search processes read and write there."""
    return Path(default_storage.path(name))


def remove_folder(name: str) -> None:
    """Delete a stored folder with all that is in it, if it is there."""
    shutil.rmtree(local_path(name), ignore_errors=True)


def folder_bytes(name: str) -> int:
    """Add up the bytes of the files in a stored folder."""
    return sum(path.stat().st_size for path in local_path(name).rglob("*") if path.is_file())


def free_bytes() -> int:
    """Say how many bytes are free where the files lie."""
    folder = Path(settings.MEDIA_ROOT)
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require_disk(more: int) -> None:
    """Refuse when storing `more` bytes would fill the disk."""
    if free_bytes() - more < settings.FREE_DISK_BYTES:
        raise Problem(507, "disk-full", "The server's disk is full; nothing was stored.")
