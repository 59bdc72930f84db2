"""Runs, their event log, their evaluations and their artifacts."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models

from webapp.graphs.models import Graph


class Run(models.Model):
    """One search: what was asked, who works on it, and how far it is.

    `attempt` and `lease_owner` are the fence: whoever writes for a run writes only while both are still his.
    """

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        STOPPING = "stopping"
        STOPPED = "stopped"
        FINISHED = "finished"
        FAILED = "failed"

    ACTIVE = (State.QUEUED, State.RUNNING, State.STOPPING)
    HELD = (State.RUNNING, State.STOPPING)  # somebody has the lease
    ENDED = (State.STOPPED, State.FINISHED, State.FAILED)

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="runs")
    graph = models.ForeignKey(Graph, on_delete=models.PROTECT, related_name="runs")
    again_of = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="repeats")
    kind = models.CharField(max_length=32, default="memory")
    idempotency_key = models.CharField(max_length=128, null=True)

    device = models.CharField(max_length=200)  # a known name, or the name in `device_toml`
    device_toml = models.TextField(null=True)
    capacity = models.BigIntegerField(null=True)  # bytes; empty: the device's own
    settings = models.JSONField()
    budget = models.JSONField()
    seed = models.BigIntegerField(default=0)
    version = models.CharField(max_length=32)  # of Graphsmith, when the run was made

    state = models.CharField(max_length=16, choices=State, default=State.QUEUED)
    reason = models.CharField(max_length=64, blank=True)  # why it ended
    error = models.JSONField(null=True)
    rank = models.BigIntegerField(default=0)  # order among the owner's queued runs
    last_seq = models.BigIntegerField(default=0)
    attempt = models.IntegerField(default=0)
    silent_attempts = models.IntegerField(default=0)  # in a row, that ended without a checkpoint or an end
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_until = models.DateTimeField(null=True)
    announced_at = models.DateTimeField(null=True)  # when its message was last sent
    stop_requested_at = models.DateTimeField(null=True)

    baselines = models.JSONField(default=dict)
    bound = models.BigIntegerField(null=True)  # picoseconds
    fits = models.BooleanField(null=True)
    best = models.BigIntegerField(null=True)  # picoseconds
    best_shown = models.BigIntegerField(null=True)  # picoseconds of the last "best" event
    step = models.BigIntegerField(default=-1)  # of the last stored progress
    evaluations = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0.0)
    checkpoint = models.CharField(max_length=300, blank=True)  # path below the run's folder
    checkpoint_sha256 = models.CharField(max_length=64, blank=True)
    checkpoint_step = models.BigIntegerField(default=-1)
    event_bytes = models.BigIntegerField(default=0)
    file_bytes = models.BigIntegerField(default=0)  # of artifacts and checkpoints

    created = models.DateTimeField(auto_now_add=True)
    queued = models.DateTimeField(null=True)
    started = models.DateTimeField(null=True)
    finished = models.DateTimeField(null=True)
    thinned = models.DateTimeField(null=True)  # when retention dropped its fine events

    class Meta:
        ordering = ["-created", "-id"]
        indexes = [
            models.Index(fields=["owner", "-created"]),
            models.Index(fields=["state", "lease_until"]),
        ]
        constraints = [
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="run_once_a_key"),
        ]

    @property
    def folder(self) -> str:
        return f"runs/{self.id}"


class RunEvent(models.Model):
    """One entry of a run's log. Append only; `seq` counts from 1 without gaps."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    attempt = models.IntegerField()
    kind = models.CharField(max_length=16)
    data = models.JSONField()
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["run", "seq"]
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="event_once")]


class Evaluation(models.Model):
    """One piece of a search's work that any worker may do. It lives until its search has the answer."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="evaluations_wanted")
    attempt = models.IntegerField()
    index = models.BigIntegerField()
    request = models.JSONField()
    result = models.JSONField(null=True)
    error = models.TextField(blank=True)
    tries = models.IntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "attempt", "index"], name="evaluation_once")]


class Artifact(models.Model):
    """A file that a run hands out."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="artifacts")
    name = models.CharField(max_length=200)
    file = models.CharField(max_length=300)  # name in the storage
    bytes = models.BigIntegerField()
    sha256 = models.CharField(max_length=64)

    class Meta:
        ordering = ["name"]
        constraints = [models.UniqueConstraint(fields=["run", "name"], name="artifact_once")]
