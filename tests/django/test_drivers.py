"""Django may speak to a database through another driver than the outbox."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import ProgrammingError

from aftercommit.stores.sql.execution import Fault
from tests.support import PATIENCE

#: Django takes psycopg 3 where it is installed, so it has to be hidden.
WITHOUT_PSYCOPG = """
import sys
sys.modules["psycopg"] = None
from django.conf import settings
postgres = {"ENGINE": "django.db.backends.postgresql", "NAME": "shop"}
settings.configure(DATABASES={"default": postgres}, INSTALLED_APPS=["aftercommit.django"])
import django
django.setup()
from django.core.management import call_command
call_command("check")
"""


def test_psycopg2_alone_is_refused_by_the_check() -> None:
    pytest.importorskip("psycopg2")
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG], capture_output=True, text=True, timeout=PATIENCE * 2, check=False
    )
    assert ran.returncode == 1
    assert "aftercommit.E001) psycopg 3 is not installed" in ran.stderr
    assert 'HINT: pip install "aftercommit[postgres]"; Django then uses psycopg 3, too' in ran.stderr


@pytest.mark.parametrize("alias", ["mariadb"], indirect=True)
def test_errors_of_mysqlclient_are_understood(alias: str, monkeypatch: Any) -> None:
    """Its classes are not those of PyMySQL; its numbers are those of the server."""
    from django.db.backends.mysql import base

    from aftercommit.django.databases import vendor_of
    from aftercommit.django.store import BlockExecutor

    other = type("Error", (Exception,), {})
    monkeypatch.setattr(base, "Database", SimpleNamespace(Error=other))
    error = ProgrammingError(1146, "no such table")
    error.__cause__ = other(1146, "no such table")
    assert BlockExecutor(alias, vendor_of(alias)).fault_of(error) is Fault.MISSING_TABLE
