"""A Django of this process: settings, databases by alias, and an outbox on each."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import TestResult, TestSuite
from urllib.parse import unquote, urlsplit

import django
import pymysql
from django.conf import settings
from django.db import connections

#: For those that are named in settings and never used by tests that choose their own.
FOLDER = Path(tempfile.mkdtemp(prefix="aftercommit-django-"))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)

IMMEDIATE = {"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {}


def sqlite_settings(path: Path | str) -> dict[str, Any]:
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": IMMEDIATE}


def server_settings(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": f"django.db.backends.{'postgresql' if parts.scheme.startswith('postgres') else 'mysql'}",
        "NAME": parts.path.lstrip("/"),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": parts.hostname,
        "PORT": parts.port,
    }


def set_up() -> None:
    """Once for the process; databases of tests come later."""
    if settings.configured:
        return
    if find_spec("MySQLdb") is None:  # mysqlclient, which not every machine can build
        pymysql.version_info = (2, 2, 1, "final", 0)  # Django asks it for its version
        pymysql.install_as_MySQLdb()
    settings.configure(
        DATABASES={
            "default": sqlite_settings(FOLDER / "default.sqlite3"),
            "second": sqlite_settings(FOLDER / "second.sqlite3"),
        },
        INSTALLED_APPS=[
            "django.contrib.contenttypes",
            "django.contrib.auth",
            "django.contrib.sessions",
            "django.contrib.messages",
            "django.contrib.admin",
            "aftercommit.django",
            "aftercommit.django.inbox",
            "tests.django.shop",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
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
        ],
        AFTERCOMMIT={"default": {"worker_count": 2}, "second": {}},
        ROOT_URLCONF="tests.django.urls",
        STATIC_URL="static/",
        ALLOWED_HOSTS=["*"],
        SECRET_KEY="for tests",
        USE_TZ=True,
    )
    django.setup()


def add_database(alias: str, given: dict[str, Any]) -> None:
    """A database that settings.py would have named."""
    remove_database(alias)
    connections.settings[alias] = connections.configure_settings({"default": given})["default"]


def remove_database(alias: str) -> None:
    if alias in connections.settings:
        if hasattr(connections._connections, alias):
            connections[alias].close()
            del connections[alias]
        del connections.settings[alias]


def make_tables(alias: str) -> None:
    """The outbox's by its migration, the shop's without one."""
    from django.core.management import call_command

    from tests.django.shop.models import Customer, Order

    call_command("migrate", "aftercommit", database=alias, verbosity=0)
    with connections[alias].schema_editor() as editor:
        existing = connections[alias].introspection.table_names()
        for model in (Customer, Order):
            if model._meta.db_table not in existing:
                editor.create_model(model)


def clear_tables(alias: str) -> None:
    with connections[alias].cursor() as cursor:
        for table in ("outbox_event", "shop_order", "shop_customer"):
            cursor.execute(f"DELETE FROM {table}")


def in_test_case(alias: str, test: Callable[[Any], None]) -> None:
    """Run a function as the one test of a django.test.TestCase, and raise what it raises."""
    from django.test import TestCase

    class Case(TestCase):
        databases = {alias}  # noqa: RUF012

        def runTest(self) -> None:  # noqa: N802
            test(self)

    result = TestResult()
    TestSuite([Case()]).run(result)
    problems = [text for _, text in (*result.errors, *result.failures)]
    assert not problems, problems[0]
    assert result.testsRun == 1
