from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from aioredlock_ng.integrations.django import get_redlock, locked_command


class Command(BaseCommand):
    """Holds a lock until it is lost or the command is ended."""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("shop")

    @locked_command("import:{shop}")
    def handle(self, *args: Any, **options: Any) -> None:
        lease = get_redlock().current_lease
        self.stdout.write("begun")
        self.stdout.flush()
        lease.wait_lost()
        lease.check()
