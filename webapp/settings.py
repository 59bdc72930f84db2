"""Settings: everything that differs between installations comes from the environment."""

from __future__ import annotations

import ipaddress
import os
import secrets
import sys
from pathlib import Path

import dj_database_url
from django.core.exceptions import ImproperlyConfigured

from webapp import environment

BASE_DIR = Path(__file__).resolve().parent.parent
HOME = Path(environment.text("GRAPHSMITH_HOME") or BASE_DIR / "var").resolve()
HOME.mkdir(mode=0o700, parents=True, exist_ok=True)


def _secret_key() -> str:
    """Read the secret key; make it at the first start, readable by this user only."""
    given = environment.text("GRAPHSMITH_SECRET_KEY")
    if given:
        if len(given) < 32:
            raise ImproperlyConfigured("GRAPHSMITH_SECRET_KEY must have at least 32 characters")
        return given
    path = HOME / "secret_key"
    draft = HOME / f"secret_key.{os.getpid()}"
    if not path.exists():
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            stream.write(secrets.token_urlsafe(48))
        try:
            os.link(draft, path)  # Of two processes that start at once, one wins and both read its key.
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    key = path.read_text().strip()
    if len(key) < 32:
        raise ImproperlyConfigured(f"{path} holds no key; delete it, and a new one is made (all will have to log in)")
    return key


def is_loopback(host: str) -> bool:
    """Say whether an address that a server binds to can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


LOCAL_HOSTS = ["localhost", "127.0.0.1", "[::1]"]

SECRET_KEY = _secret_key()
DEBUG = False

# The address that the server is bound to; `manage.py up` sets it. Unknown means: not only this machine.
BIND = environment.text("GRAPHSMITH_BIND")
LOCAL_SIGN_IN = bool(BIND) and is_loopback(BIND) and environment.flag("GRAPHSMITH_LOCAL_SIGN_IN", True)
ALLOWED_HOSTS = environment.listing("ALLOWED_HOSTS")
if not ALLOWED_HOSTS:
    if BIND and not is_loopback(BIND):
        raise ImproperlyConfigured(
            f"ALLOWED_HOSTS must name the hosts that this server answers for, because it is bound to {BIND}"
        )
    ALLOWED_HOSTS = list(LOCAL_HOSTS)
CSRF_TRUSTED_ORIGINS = environment.listing("CSRF_TRUSTED_ORIGINS")
HTTPS = environment.flag("GRAPHSMITH_HTTPS", False)
if HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "channels",
    "ninja",
    "webapp",
    "webapp.accounts",
    "webapp.graphs",
    "webapp.runs",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "webapp.headers.SecurityHeaders",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
APPEND_SLASH = False

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

# -- database

DATABASES = {
    "default": dj_database_url.parse(
        environment.text("DATABASE_URL") or f"sqlite:///{HOME / 'graphsmith.sqlite3'}",
        # Each request has a thread of its own, with which a connection that is kept would be forgotten.
        conn_max_age=0,
    )
}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # A read-then-write in a deferred transaction fails at once with "database is locked", whatever the timeout.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # Channels tests and threads need a file; in memory each connection would see its own database.
    DATABASES["default"]["TEST"] = {"NAME": str(HOME / "test.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# -- accounts

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
LOGIN_URL = "/"
SESSION_COOKIE_NAME = "graphsmith_session"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = HTTPS
CSRF_FAILURE_VIEW = "webapp.problems.csrf_failure"

LOGIN_FAILURES_PER_ACCOUNT = environment.integer("LOGIN_FAILURES_PER_ACCOUNT", 5, least=1)
LOGIN_FAILURES_PER_ADDRESS = environment.integer("LOGIN_FAILURES_PER_ADDRESS", 30, least=1)
LOGIN_WINDOW_SECONDS = environment.integer("LOGIN_WINDOW_SECONDS", 300, least=1)

# -- language, time

TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

# -- files

FRONTEND = BASE_DIR / "frontend" / "dist"
STATIC_URL = "/static/"
STATICFILES_DIRS = [FRONTEND] if FRONTEND.is_dir() else []
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = False
WHITENOISE_INDEX_FILE = False
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/assets/.+-[A-Za-z0-9_-]{8}\.[a-z0-9]+$"

MEDIA_ROOT = HOME / "files"
STORAGES = {
    "default": {
        "BACKEND": "django.core.files.storage.FileSystemStorage",
        "OPTIONS": {"location": str(MEDIA_ROOT), "file_permissions_mode": 0o600, "directory_permissions_mode": 0o700},
    },
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
MB = 1024 * 1024
UPLOAD_LIMIT_BYTES = environment.integer("UPLOAD_LIMIT_BYTES", 64 * 10**6, least=1024)  # also once decompressed
# What a request may weigh in all: the file and the few form fields around it.
REQUEST_LIMIT_BYTES = UPLOAD_LIMIT_BYTES + MB
DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * MB
DATA_UPLOAD_MAX_NUMBER_FIELDS = 100
DATA_UPLOAD_MAX_NUMBER_FILES = 1
FILE_UPLOAD_HANDLERS = ["django.core.files.uploadhandler.TemporaryFileUploadHandler"]
USER_QUOTA_BYTES = environment.integer("USER_QUOTA_BYTES", 5 * 1024 * MB, least=MB)

# -- engine

REDIS_FOLDER = HOME / "redis"
REDIS_URL = environment.text("REDIS_URL") or f"unix://{REDIS_FOLDER / 'redis.sock'}"
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "graphsmith"},
    }
}

CORES = len(os.sched_getaffinity(0))
SEARCH_SLOTS = environment.integer("SEARCH_SLOTS", max(1, CORES - 1), least=1, most=1024)
EVALUATE_SLOTS = environment.integer("EVALUATE_SLOTS", CORES, least=1, most=1024)
INSTANCE = environment.text("GRAPHSMITH_INSTANCE", "alone")  # which `manage.py up` a worker belongs to
EXECUTOR = environment.choice("GRAPHSMITH_EXECUTOR", "supervisor", allowed=("supervisor", "local"))

SEARCH_COMMAND = [sys.executable, "-m", "search"]
LEASE_SECONDS = environment.seconds("LEASE_SECONDS", 30.0, least=1.0)
HEARTBEAT_SECONDS = LEASE_SECONDS / 6
STOP_GRACE_SECONDS = environment.seconds("STOP_GRACE_SECONDS", 10.0, least=0.1)
CHECKPOINT_SECONDS = environment.seconds("CHECKPOINT_SECONDS", 2.0, least=0.1)
RUN_MEMORY_BYTES = environment.integer("RUN_MEMORY_BYTES", 8 * 1024 * MB, least=256 * MB)
MAX_SILENT_ATTEMPTS = environment.integer("MAX_SILENT_ATTEMPTS", 5, least=1)  # in a row without a new checkpoint
EVALUATE_SECONDS = environment.seconds("EVALUATE_SECONDS", 300.0, least=1.0)
PREPARE_SECONDS = environment.seconds("PREPARE_SECONDS", 600.0, least=1.0)
PREPARE_MEMORY_BYTES = environment.integer("PREPARE_MEMORY_BYTES", 8 * 1024 * MB, least=256 * MB)
FREE_DISK_BYTES = environment.integer("FREE_DISK_BYTES", 256 * MB)  # less is "the disk is full"

EVENT_RETENTION_DAYS = environment.integer("EVENT_RETENTION_DAYS", 7)
CACHE_RETENTION_DAYS = environment.integer("CACHE_RETENTION_DAYS", 30)

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "{asctime} {levelname} {name}: {message}", "style": "{"}},
    "filters": {
        # Not an error of the server's: whoever asked has the answer.
        "not_health": {
            "()": "django.utils.log.CallbackFilter",
            "callback": lambda record: record.getMessage() != "Service Unavailable: /healthz",
        }
    },
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["not_health"]}},
    "root": {"handlers": ["console"], "level": environment.text("LOG_LEVEL", "WARNING")},
    "loggers": {"graphsmith": {"level": environment.text("LOG_LEVEL", "INFO")}},
}
