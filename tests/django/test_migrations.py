"""The migration makes what create_schema() makes, and takes it away again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connections, transaction

from aftercommit import Outbox, SchemaMismatch, SchemaMissing
from tests.conftest import execute_mysql, execute_postgres
from tests.django import kit
from tests.django.conftest import URLS, new_database

TABLES = {f"outbox_{noun}" for noun in ("event", "schema", "instance", "partition", "failure", "pause")}

Make = Callable[..., Any]


def columns(alias: str, table: str) -> Any:
    """Everything that the database itself tells of a table: its text, its columns, its indexes."""
    match connections[alias].vendor:
        case "sqlite":
            sql = f"SELECT type, sql FROM sqlite_master WHERE tbl_name = '{table}' ORDER BY name"
        case "mysql":
            sql = f"SHOW CREATE TABLE {table}"
        case _:
            sql = (
                "SELECT column_name, data_type, character_maximum_length, collation_name, column_default, is_nullable, "
                f"is_identity, NULL FROM information_schema.columns WHERE table_name = '{table}' "
                "UNION ALL SELECT indexname, indexdef, NULL, NULL, NULL, NULL, NULL, NULL FROM pg_indexes "
                f"WHERE tablename = '{table}' UNION ALL SELECT conname, pg_get_constraintdef(oid), NULL, NULL, NULL, "
                f"NULL, NULL, NULL FROM pg_constraint WHERE conrelid = '{table}'::regclass UNION ALL "
                f"SELECT relname, reloptions::text, NULL, NULL, NULL, NULL, NULL, NULL FROM pg_class "
                f"WHERE relname = '{table}' ORDER BY 1, 2"
            )
    with connections[alias].cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def facts(alias: str) -> dict[str, str]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT name, value FROM outbox_schema")
        return dict(cursor.fetchall())


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def empty(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[tuple[str, str]]:
    """A database without any tables: its alias, and its URL for an outbox without Django."""
    alias = "empty"
    if request.param == "sqlite":
        kit.add_database(alias, kit.sqlite_settings(tmp_path / "empty.sqlite3"))
        yield alias, f"sqlite:///{tmp_path / 'empty.sqlite3'}"
        kit.remove_database(alias)
        return
    server = request.getfixturevalue(URLS[request.param])
    execute = execute_mysql if request.param == "mariadb" else execute_postgres
    for url in new_database(server, execute, "DROP DATABASE {}"):
        kit.add_database(alias, kit.server_settings(url))
        yield alias, url
        kit.remove_database(alias)


def test_it_makes_what_create_schema_makes(empty: tuple[str, str]) -> None:
    alias, url = empty
    call_command("migrate", "aftercommit", database=alias, verbosity=0)
    by_django = [columns(alias, table) for table in TABLES]
    facts_by_django = facts(alias)
    call_command("migrate", "aftercommit", "zero", database=alias, verbosity=0)
    assert not TABLES & set(connections[alias].introspection.table_names())
    connections[alias].close()

    outbox = Outbox(url, create_schema=True)
    outbox.create_schema()
    outbox.close()
    assert by_django == [columns(alias, table) for table in TABLES]
    ours = facts(alias)
    assert facts_by_django.pop("store_id") != ours.pop("store_id")
    assert facts_by_django == ours


def test_it_finds_its_work_done(empty: tuple[str, str]) -> None:
    alias, url = empty
    outbox = Outbox(url, create_schema=True)
    outbox.create_schema()
    outbox.close()
    before = facts(alias)
    call_command("migrate", "aftercommit", database=alias, verbosity=0)
    assert facts(alias) == before


def test_it_keeps_the_order_that_the_settings_ask_for(
    empty: tuple[str, str], settings_of: Any, make_outbox: Make
) -> None:
    alias, _ = empty
    with settings_of(AFTERCOMMIT={alias: {"ordered": True, "on_dead": "continue"}}):
        call_command("migrate", "aftercommit", database=alias, verbosity=0)
    assert (facts(alias)["ordered"], facts(alias)["on_dead"]) == ("1", "continue")
    assert make_outbox(alias, ordered=True, on_dead="continue").stats().backlog.new == 0
    with pytest.raises(SchemaMismatch, match="was made with ordered=True"):
        make_outbox(alias).stats()


def test_it_upgrades_tables_of_an_older_release(empty: tuple[str, str], make_outbox: Make) -> None:
    """Of before there was order, or a fleet."""
    alias, _ = empty
    call_command("migrate", "aftercommit", "0001", database=alias, verbosity=0)
    made = [columns(alias, table) for table in TABLES]
    drops = {
        "mysql": [
            "ALTER TABLE outbox_event DROP INDEX outbox_event_unique, DROP COLUMN unique_pending",
            "ALTER TABLE outbox_event DROP INDEX outbox_event_order, DROP COLUMN is_dead, DROP COLUMN order_key, "
            "DROP COLUMN unique_key",
        ]
    }
    plain = [
        *(f"DROP INDEX outbox_event_{index}" for index in ("order", "blocking", "unique")),
        "ALTER TABLE outbox_event DROP COLUMN unique_key",
    ]
    with connections[alias].cursor() as cursor:
        for sql in (
            *drops.get(connections[alias].vendor, plain),
            "DROP TABLE outbox_instance",
            "DROP TABLE outbox_partition",
            "DROP TABLE outbox_failure",
            "DROP TABLE outbox_pause",
            "DELETE FROM outbox_schema WHERE name IN ('ordered', 'on_dead')",
            "UPDATE outbox_schema SET value = '1' WHERE name = 'version'",
        ):
            cursor.execute(sql)
    call_command("migrate", "aftercommit", database=alias, verbosity=0)
    assert [columns(alias, table) for table in TABLES] == made
    assert (facts(alias)["version"], facts(alias)["ordered"]) == ("5", "0")
    assert make_outbox(alias).stats().backlog.new == 0


def test_it_can_be_had_as_sql(empty: tuple[str, str], make_outbox: Make) -> None:
    """For people who run it themselves."""
    alias, _ = empty
    parts = []
    for name in ("0001", "0002", "0003", "0004"):
        call_command("sqlmigrate", "aftercommit", name, database=alias, stdout=(part := StringIO()), no_color=True)
        parts.append(part.getvalue())
    if connections[alias].vendor == "postgresql":  # the table may be in use, and nothing may begin a transaction
        assert "CREATE INDEX CONCURRENTLY" in parts[1]
        assert "BEGIN" not in parts[1]
    with connections[alias].cursor() as cursor:
        for statement in "".join(parts).split(";\n"):
            text = "\n".join(line for line in statement.splitlines() if not line.startswith("--")).strip(" ;\n")
            if text and text not in ("BEGIN", "COMMIT"):
                cursor.execute(text)
    outbox, seen = make_outbox(alias), []
    outbox.register("Placed", seen.append)
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    assert (outbox.drain().delivered, len(seen)) == (1, 1)


def test_without_it_the_error_says_what_to_run(empty: tuple[str, str], make_outbox: Make) -> None:
    alias, _ = empty
    outbox = make_outbox(alias)
    outbox.register("Placed", print)
    with pytest.raises(SchemaMissing) as caught, transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    assert caught.value.fix == "python manage.py migrate aftercommit --database=empty"
    with pytest.raises(SchemaMissing) as caught:
        outbox.drain()
    assert caught.value.fix == "python manage.py migrate aftercommit --database=empty"


def test_the_model_has_no_changes_that_are_not_in_a_migration() -> None:
    call_command("makemigrations", "aftercommit", check=True, dry_run=True, verbosity=0)


def test_a_router_may_keep_it_out(file_alias: str, settings_of: Any) -> None:
    class NotHere:
        def allow_migrate(self, db: str, app_label: str, **hints: object) -> bool:
            return app_label != "aftercommit"

    call_command("migrate", "aftercommit", "zero", database=file_alias, verbosity=0)
    with settings_of(DATABASE_ROUTERS=[NotHere()]):
        call_command("migrate", "aftercommit", database=file_alias, verbosity=0)
    assert "outbox_event" not in connections[file_alias].introspection.table_names()


def test_flush_empties_the_table_between_tests(file_alias: str, make_outbox: Make) -> None:
    """As TransactionTestCase does; what is known about the schema stays."""
    outbox = make_outbox(file_alias)
    with transaction.atomic(using=file_alias):
        outbox.write("Placed", 1)
    call_command("flush", database=file_alias, interactive=False, inhibit_post_migrate=True, verbosity=0)
    assert outbox.stats().backlog.new == 0
    assert facts(file_alias)["version"] == "5"
