"""Users in Django's admin: add, deactivate, set passwords and quotas. Users are not deleted here."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest

from webapp.accounts.models import User


@admin.register(User)
class GraphsmithUserAdmin(UserAdmin):
    fieldsets = (*UserAdmin.fieldsets, ("Storage", {"fields": ("quota_bytes",)}))

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        # Runs and uploads would go with the user; "active" is what an administrator takes away.
        return False
