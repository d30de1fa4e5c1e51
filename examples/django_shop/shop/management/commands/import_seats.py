import time

from django.core.management.base import BaseCommand

from aioredlock_ng.integrations.django import get_redlock, locked_command
from shop.models import Seat


class Command(BaseCommand):
    help = "Add seats to the hall. One import runs at a time, in the whole fleet."

    def add_arguments(self, parser):
        parser.add_argument("count", type=int)
        parser.add_argument("--pause", type=float, default=0.0)

    # A second import says that the lock is held, and ends with status 1.
    @locked_command("import:seats")
    def handle(self, *args, count, pause, **options):
        lease = get_redlock().current_lease
        for number in range(count):
            # Raises LockLost after a loss. No I/O.
            lease.check()
            Seat.objects.get_or_create(number=number)
            self.stdout.write(f"seat {number}", ending="\n")
            self.stdout.flush()
            time.sleep(pause)
