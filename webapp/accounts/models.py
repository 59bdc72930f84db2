"""Users, API keys, and failed logins."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db import models


class User(AbstractUser):
    """Somebody who may sign in."""

    quota_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="Storage for uploads and runs, in bytes; empty: the installation's default"
    )

    @property
    def storage_quota_bytes(self) -> int:
        return settings.USER_QUOTA_BYTES if self.quota_bytes is None else self.quota_bytes


class ApiKey(models.Model):
    """A key for scripts; only its digest is kept."""

    owner = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_keys")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=8, unique=True)
    digest = models.CharField(max_length=64)  # SHA-256; enough because the secret is 256 random bits
    created = models.DateTimeField(auto_now_add=True)
    last_used = models.DateTimeField(null=True)

    class Meta:
        ordering = ["-created", "-id"]


class LoginAttempt(models.Model):
    """A login that has not succeeded (yet)."""

    account = models.CharField(max_length=64)  # digest of the name that was tried
    address = models.CharField(max_length=64)
    created = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        indexes = [models.Index(fields=["account", "address"]), models.Index(fields=["address"])]
