"""Uploaded modules and what is derived from them."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models


class Blob(models.Model):
    """An uploaded file's bytes, stored once by their hash. Its row is the lock around the file."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    bytes = models.BigIntegerField()

    @property
    def file(self) -> str:
        return f"uploads/{self.sha256}"


class Graph(models.Model):
    """One module: the upload, its schedule, its program, and its pictures."""

    class State(models.TextChoices):
        SCHEDULING = "scheduling"
        READY = "ready"
        FAILED = "failed"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.CASCADE, related_name="graphs"
    )  # empty: an example, which belongs to nobody
    name = models.CharField(max_length=200)
    example = models.CharField(max_length=100, null=True, unique=True)  # which example this is
    title = models.CharField(max_length=200, blank=True)
    provenance = models.TextField(blank=True)
    state = models.CharField(max_length=16, choices=State, default=State.SCHEDULING)
    error = models.JSONField(null=True)
    notes = models.JSONField(default=list)
    format = models.CharField(max_length=32, blank=True)
    blob = models.ForeignKey(Blob, on_delete=models.PROTECT, related_name="graphs")
    bytes = models.BigIntegerField()  # of the upload
    derived_bytes = models.BigIntegerField(default=0)
    created = models.DateTimeField(auto_now_add=True)

    instructions = models.BigIntegerField(null=True)
    steps = models.BigIntegerField(null=True)
    buffers = models.BigIntegerField(null=True)
    peak_bytes = models.BigIntegerField(null=True)
    schedule_source = models.CharField(max_length=16, null=True)
    suggested_device = models.CharField(max_length=64, null=True)
    suggested_capacity = models.BigIntegerField(null=True)

    attempt = models.IntegerField(default=0)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    announced_at = models.DateTimeField(null=True)  # when its message was last sent

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [models.Index(fields=["owner", "-created"]), models.Index(fields=["state"])]

    @property
    def folder(self) -> str:
        return f"graphs/{self.id}"


class Preview(models.Model):
    """What a module costs on one device before any search: a cache."""

    graph = models.ForeignKey(Graph, on_delete=models.CASCADE, related_name="previews")
    key = models.CharField(max_length=64)  # digest of device and capacity
    data = models.JSONField()
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["graph", "key"], name="preview_once")]
