"""Django may speak to a database through another driver than the outbox."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from django.db import ProgrammingError, transaction

from aftercommit.django.store import DjangoStore
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.execution import Fault
from tests.stores.mysql_kit import locked
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
    mysqlclients = use_mysqlclient(monkeypatch)
    error = ProgrammingError(1146, "no such table")
    error.__cause__ = mysqlclients(1146, "no such table")
    assert DjangoStore(alias).executor.fault_of(error) is Fault.MISSING_TABLE


@pytest.mark.parametrize("alias", ["mariadb"], indirect=True)
def test_beside_mysqlclient_the_errors_of_workers_are_those_of_their_own_driver(
    alias: str, make_outbox: Any, django_mysql_url: str, monkeypatch: Any
) -> None:
    """A locked row is to blame alone: else it would hold up a whole group of settles."""
    use_mysqlclient(monkeypatch)
    outbox = make_outbox(alias)
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    rows = "SELECT * FROM outbox_event FOR UPDATE"
    with locked(django_mysql_url, rows), pytest.raises(pymysql.OperationalError, match="1205") as caught:
        run(outbox._store.executor.fetch(f"{rows} NOWAIT"))
    assert outbox._store.is_row_fault(caught.value)


def use_mysqlclient(monkeypatch: Any) -> type[Exception]:
    """As far as its errors go; their root is another than PyMySQL's."""
    from django.db.backends.mysql import base

    error = type("Error", (Exception,), {})
    monkeypatch.setattr(base, "Database", SimpleNamespace(Error=error))
    return error
