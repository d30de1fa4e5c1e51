"""A project of Django in one module, for the process of the tests and for those that they start."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings

__all__ = ["configure"]


def configure() -> None:
    """Set Django up, once per process."""
    import django

    if settings.configured:
        return
    settings.configure(
        DEBUG=False,
        SECRET_KEY="tests",
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF="tests.integrations.django_project",
        INSTALLED_APPS=["tests.integrations.django_commands"],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    )
    django.setup()


urlpatterns: list[Any] = []

if __name__ == "__main__":
    configure()
    from django.core.management import execute_from_command_line

    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    execute_from_command_line(sys.argv)
