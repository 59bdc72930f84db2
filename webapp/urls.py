"""All addresses of the server."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path, re_path

from webapp import page
from webapp.api import api
from webapp.health import healthz

urlpatterns = [
    path("healthz", healthz),
    path("api/", api.urls),
    re_path(r"^api/(?P<path>.*)$", page.missing),
    path("admin/", admin.site.urls),
    re_path(r"^(?!static/|ws/|admin/)(?P<path>.*)$", page.index),
]
