"""Settings of the shop."""

import os
from pathlib import Path

SECRET_KEY = "an example"
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASE = os.environ.get("SHOP", Path(__file__).parents[1] / "shop.sqlite3")
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": DATABASE,
        "ATOMIC_REQUESTS": True,
    }
}

AIOREDLOCK_NG = {
    "nodes": os.environ["AIOREDLOCK_NG_NODES"].split(","),
    "ttl": 10,
}
