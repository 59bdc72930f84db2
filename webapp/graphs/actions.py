"""Take modules in, copy examples, delete."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from django.conf import settings
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import transaction
from django.utils import timezone
from ninja.files import UploadedFile

from webapp import files
from webapp.accounts.models import User
from webapp.accounts.selectors import storage_used
from webapp.graphs import tasks
from webapp.graphs.compilers import check_module
from webapp.graphs.models import Blob, Graph
from webapp.problems import Problem


def upload(user: User, *, file: UploadedFile) -> Graph:
    """Check an uploaded module with XLA's parser and store it; its schedule follows in the background.

    Nothing is stored unless the parser takes it.
    """
    limit = settings.UPLOAD_LIMIT_BYTES
    if file.size is None or file.size > limit:
        raise Problem(413, "upload-too-big", f"The file is over the limit of {limit} bytes.", field="file")
    require_quota(user, file.size)
    files.require_disk(file.size)
    data = file.read()
    checked = check_module(data)
    return store(data, owner=user, name=upload_name(file.name), format=checked.format, notes=list(checked.notes))


def upload_name(name: str | None) -> str:
    """Keep what is a name in what the client says: no folders, no control characters."""
    plain = PurePosixPath((name or "").replace("\\", "/")).name
    return "".join(letter for letter in plain if letter.isprintable())[:200] or "module"


def require_quota(user: User, more: int) -> None:
    """Refuse when storing `more` bytes would go over the user's quota."""
    if storage_used(user) + more > user.storage_quota_bytes:
        raise Problem(
            409,
            "storage-quota",
            f"This would go over your storage of {user.storage_quota_bytes} bytes.",
            hint="Delete runs or modules that you no longer need.",
        )


def store(data: bytes, *, owner: User | None, name: str, **fields: Any) -> Graph:
    """Store a module's bytes by their hash, make its row, and have it scheduled."""
    sha256 = hashlib.sha256(data).hexdigest()
    with transaction.atomic():
        blob, _ = Blob.objects.select_for_update().get_or_create(sha256=sha256, defaults={"bytes": len(data)})
        if not default_storage.exists(blob.file):
            default_storage.save(blob.file, ContentFile(data))
        graph = Graph.objects.create(
            owner=owner, name=name, blob=blob, bytes=len(data), announced_at=timezone.now(), **fields
        )
        tasks.announce_on_commit(graph.pk)
    return graph


def copy_example(user: User, *, name: str | None) -> Graph:
    """Give the user a module of his own with an example's bytes."""
    example = Graph.objects.filter(owner=None, example=name).select_related("blob").first()
    if example is None:
        raise Problem(404, "not-found", "There is no example of this name.", field="example")
    require_quota(user, example.bytes)
    files.require_disk(example.bytes)
    with default_storage.open(example.blob.file) as stream:
        data = stream.read()
    same = ("title", "provenance", "format", "suggested_device", "suggested_capacity")
    return store(data, owner=user, name=example.name, **{field: getattr(example, field) for field in same})


def delete(graph: Graph) -> None:
    """Delete a module that no run needs, with its files."""
    with transaction.atomic():
        blob = Blob.objects.select_for_update().get(pk=graph.blob_id)
        runs = graph.runs.count()
        if runs:
            raise Problem(409, "graph-in-use", f"{runs} of your runs use this module.", hint="Delete those runs first.")
        folder = graph.folder
        graph.delete()
        if not blob.graphs.exists():
            file = blob.file
            blob.delete()
            # While the row's lock is held nobody else can store the same bytes.
            default_storage.delete(file)
        transaction.on_commit(remover(folder))


def remover(folder: str) -> Callable[[], None]:
    """Make a callback that deletes a stored folder."""
    return lambda: files.remove_folder(folder)
