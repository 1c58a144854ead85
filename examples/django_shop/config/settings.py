import os
from pathlib import Path

import django

BASE_DIR = Path(__file__).parents[1]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", BASE_DIR / "shop.sqlite3"),
        # Django 5.1 and later: a transaction that reads first and writes later must not be overtaken in between.
        "OPTIONS": {"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {},
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "aftercommit.django", "shop"]

# The options of Outbox, for each database. All of them have defaults.
AFTERCOMMIT = {"default": {"poll_interval": "200ms", "worker_count": 2}}

ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
SECRET_KEY = "only for this example"  # noqa: S105
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
