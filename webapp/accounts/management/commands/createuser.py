"""Make a user."""

from __future__ import annotations

import getpass
import sys

from django.contrib.auth import password_validation
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from webapp.accounts.models import User


class Command(BaseCommand):
    help = "Make a user; the password is asked for, or read from standard input."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--admin", action="store_true", help="may manage users at /admin/")

    def handle(self, *args: object, username: str, admin: bool, **options: object) -> None:
        password = getpass.getpass() if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
        user = User(username=username, is_staff=admin, is_superuser=admin)
        try:
            user.full_clean(exclude=["password"])
            password_validation.validate_password(password, user)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        user.set_password(password)
        try:
            user.save()
        except IntegrityError as error:
            raise CommandError(f"there is a user {username!r} already") from error
        self.stdout.write(f"user {username} is ready")
