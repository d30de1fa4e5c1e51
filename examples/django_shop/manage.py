"""A shop on Django. A seat is sold once, and one import runs at a time.

export AIOREDLOCK_NG_NODES=redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
cd examples/django_shop; python manage.py migrate --run-syncdb
python manage.py runserver & curl -X POST http://127.0.0.1:8000/seats/12
python manage.py import_seats 5
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
