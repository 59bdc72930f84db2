"""What the accounts' routes take and give."""

from __future__ import annotations

from datetime import datetime

from ninja import Schema
from pydantic import Field


class UserOut(Schema):
    id: int
    username: str
    is_staff: bool
    has_password: bool
    storage_used_bytes: int
    storage_quota_bytes: int


class SessionOut(Schema):
    user: UserOut | None
    local: bool = Field(description="The page was opened on this machine, which may sign in without a password")
    version: str
    upload_limit_bytes: int


class LoginIn(Schema):
    username: str = Field(max_length=150)
    password: str = Field(max_length=1024)


class PasswordIn(Schema):
    current: str = Field(default="", max_length=1024, description="Empty for a local user who has no password yet")
    new: str = Field(max_length=1024)


class KeyIn(Schema):
    name: str = Field(min_length=1, max_length=100)


class KeyOut(Schema):
    id: int
    name: str
    prefix: str
    created: datetime
    last_used: datetime | None


class NewKeyOut(KeyOut):
    key: str = Field(description="The key itself; it is shown once")
