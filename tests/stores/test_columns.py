"""The columns are said once: what the migrations make, what is written and what is read follow from one list."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from aftercommit import EventEnvelope
from aftercommit.events.claims import Claimed, ClaimRequest, NewEvent
from aftercommit.events.columns import CLAIMED, COLUMNS, GIVEN, PARAMETERS, PLAIN, WRITTEN, Column, Kind
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.dialect import DIALECT as MYSQL
from aftercommit.stores.postgres.dialect import PSYCOPG as POSTGRES
from aftercommit.stores.sql.inserting import insert_values, inserted
from aftercommit.stores.sql.rows import (
    AVAILABLE_AT,
    EVENT_ID,
    EVENT_KEY,
    IN_UTC,
    NEXT_DUE,
    NOW,
    POSITION,
    claimed_of,
)
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER
from aftercommit.testing.kit import event
from tests.stores.mysql_kit import COMPUTED, made, store_at
from tests.stores.postgres_kit import Table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Found(NamedTuple):
    """A column as a database tells of it."""

    name: str
    type: str
    is_nullable: bool
    default: str | None


def wanted(column: Column, types: dict[Kind, str], **lengths: int) -> Found:
    kind = types[column.kind].replace("$", str(lengths.get(column.name, column.length)))
    return Found(column.name, kind, column.is_nullable, None if column.default is None else repr(column.default))


def test_the_table_in_sqlite() -> None:
    types = dict.fromkeys((Kind.SMALL, Kind.NUMBER, Kind.LARGE, Kind.INSTANT), "INTEGER")
    types |= dict.fromkeys((Kind.NAME, Kind.LABEL, Kind.NOTE, Kind.TEXT), "TEXT") | {Kind.BYTES: "BLOB"}
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in Statements(SQLITE, TableNames("outbox_event")).migrations():
            for statement in migration.statements:
                connection.execute(statement)
        rows = connection.execute("PRAGMA table_info(outbox_event)").fetchall()
    # The key is never NULL there, and does not say so.
    found = [
        Found(name, kind, not is_set and name != "position", default) for _, name, kind, is_set, default, _ in rows
    ]
    assert found == [wanted(column, types) for column in COLUMNS]


def test_the_table_in_postgresql(postgres_table: Table) -> None:
    types = {
        Kind.SMALL: "smallint",
        Kind.NUMBER: "integer",
        Kind.LARGE: "bigint",
        Kind.NAME: 'character varying($) COLLATE "C"',
        Kind.LABEL: "character varying($)",
        Kind.NOTE: "text",
        Kind.TEXT: "text",
        Kind.BYTES: "bytea",
        Kind.INSTANT: "timestamp with time zone",
    }
    rows = postgres_table.read(
        "SELECT attname AS name, format_type(atttypid, atttypmod)"
        " || CASE WHEN collname = 'C' THEN ' COLLATE \"C\"' ELSE '' END AS type, NOT attnotnull AS is_nullable,"
        " pg_get_expr(adbin, adrelid) AS default FROM pg_attribute LEFT JOIN pg_collation ON attcollation ="
        " pg_collation.oid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum"
        " WHERE attrelid = 'outbox_event'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    found = [Found(**{**row, "default": row["default"] and row["default"].split("::")[0]}) for row in rows]
    assert sorted(found) == sorted(wanted(column, types, content_type=128) for column in COLUMNS)


@pytest.fixture
def mysql_columns(mysql_url: str) -> Iterator[list[dict[str, Any]]]:
    table = made(mysql_url)
    table.clear()
    store = store_at(mysql_url, table="said_once")
    run(store.open())
    run(store.close())
    yield table.read("SHOW FULL COLUMNS FROM said_once")
    table.clear()
    table.close()


def test_the_table_in_mysql(mysql_columns: list[dict[str, Any]]) -> None:
    types = {
        Kind.SMALL: "smallint",
        Kind.NUMBER: "int",
        Kind.LARGE: "bigint",
        Kind.NAME: "varchar($)",
        Kind.LABEL: "varchar($)",
        Kind.NOTE: "text",
        Kind.TEXT: "longtext",
        Kind.BYTES: "longblob",
        Kind.INSTANT: "datetime(6)",
    }
    found = [
        Found(
            row["Field"],
            re.sub(r"(int)\(\d+\)", r"\1", row["Type"]),
            row["Null"] == "YES",
            row["Default"] if row["Default"] is None or row["Default"].isdigit() else repr(row["Default"]),
        )
        for row in mysql_columns
        if row["Field"] not in COMPUTED
    ]
    assert found == [wanted(column, types) for column in COLUMNS]
    assert all(row["Collation"] is None or row["Collation"].endswith("_bin") for row in mysql_columns)


def test_the_table_in_sql_server() -> None:
    """By its text: two units for each character, and times without a zone."""
    types = {
        Kind.SMALL: "smallint",
        Kind.NUMBER: "int",
        Kind.LARGE: "bigint",
        Kind.NAME: "nvarchar($)",
        Kind.LABEL: "nvarchar($)",
        Kind.NOTE: "nvarchar(max)",
        Kind.TEXT: "nvarchar(max)",
        Kind.BYTES: "varbinary(max)",
        Kind.INSTANT: "datetime2(6)",
    }
    migrations = Statements(SQLSERVER, TableNames("outbox_event", None, ("[", "]"))).migrations()
    script = "\n".join(migrations[0].statements)
    table = script[script.index("CREATE TABLE [outbox_event]") :]
    table += "".join(f"\n  {added}," for added in re.findall(r"ADD (unique_key .*)", migrations[4].statements[0]))
    found = re.findall(
        r"^  ([a-z_]+) ((?:nvarchar|datetime2|varbinary)\(\w+\)|smallint|int|bigint)(.*?),$", table, re.M
    )
    lengths = {column.name: 2 * column.length for column in COLUMNS if column.length is not None} | {
        "content_type": 256
    }
    wants = [wanted(column, types, **lengths) for column in COLUMNS]
    assert [(name, kind, "NOT NULL" not in rest) for name, kind, rest in found] == [each[:3] for each in wants]
    defaults = {
        name: rest.split("DEFAULT N" if "N'" in rest else "DEFAULT ")[1] for name, _, rest in found if "DEFAULT" in rest
    }
    assert defaults == {each.name: each.default for each in wants if each.default is not None}


# ---------------------------------------------------------------- what is written


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL, SQLSERVER], ids=lambda dialect: dialect.name)
def test_an_insert_names_what_is_written_and_binds_the_parameters(dialect: Any) -> None:
    insert = Statements(dialect, TableNames("outbox_event", None, dialect.quotes))["insert"]
    names = re.search(r"INSERT INTO \S+ \((.+?)\) VALUES \(", insert.sql)
    assert names is not None
    assert names[1].split(", ") == [column.name for column in WRITTEN]
    assert set(insert.names) == {name for name, _ in PARAMETERS}


def test_an_event_gives_all_parameters() -> None:
    assert set(insert_values(NewEvent(event(), 7), IN_UTC)) == {name for name, _ in PARAMETERS}


def test_an_insert_of_many_has_the_same_parameters_and_columns() -> None:
    statements = Statements(POSTGRES, TableNames("outbox_event"))
    many = statements["insert_many"]
    assert many.names == tuple(name for name, _ in PARAMETERS)
    assert f"({', '.join(column.name for column in WRITTEN)})" in many.sql
    assert f"AS new ({', '.join(many.names)}, number)" in many.sql
    assert many.sql.count("new.") == statements["insert"].sql.count("%s"), "where one has a parameter"


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES, MYSQL, SQLSERVER], ids=lambda dialect: dialect.name)
def test_a_plain_event_has_the_defaults_of_all_that_is_left_out(dialect: Any) -> None:
    statements = Statements(dialect, TableNames("outbox_event", None, dialect.quotes))
    given = {column.name for column in PLAIN}
    assert set(statements["insert_free"].names) == given
    assert set(statements["insert_leased"].names) == {*given, "owner", "lock_timeout"}
    values = insert_values(NewEvent(event(), 7), dialect.times)
    said = {"content_type", "created_at", "available_at"}
    assert str(values["content_type"]) in statements["insert_free"].sql
    for column in WRITTEN:
        if column.name not in given | said and column.value == GIVEN:
            assert values[column.name] == column.default, column.name


def test_an_insert_of_many_plain_events_has_the_same_parameters() -> None:
    statements = Statements(POSTGRES, TableNames("outbox_event"))
    for kind in ("free", "leased"):
        many, names = statements[f"insert_many_{kind}"], statements[f"insert_{kind}"].names
        assert many.names == tuple("texts" if name == "payload" else name for name in names)
        assert f"AS new ({', '.join(names)}, number)" in many.sql


def test_what_is_not_plain_has_all_parameters() -> None:
    plain = NewEvent(event(), 7)

    def one(*events: NewEvent) -> str:
        return inserted(events)[0]

    assert one(plain, plain) == "insert_free"
    assert one(replace(plain, owner="alice")) == "insert_leased"
    assert one(plain, replace(plain, owner="alice")) == "insert"
    assert one(plain, replace(plain, handler_id="h")) == "insert"
    others: list[dict[str, Any]] = [
        {"payload_bytes": b"1"},
        {"content_type": "application/xml"},
        {"payload_version": 2},
        {"tenant_id": "t"},
        {"deliver_after": 1},
        {"available_at": NOON + timedelta(days=4000)},
    ]
    for other in others:
        given = {"event_type": "T", "payload_json": "[]", **other}
        if "payload_bytes" in given:
            del given["payload_json"]
        assert one(plain, replace(plain, event=EventEnvelope(**given))) == "insert", other
    odd = event().restore("1", "T", "[\x1f]", "application/json", 1, NOON, "A", None, None, None, {}, None)
    assert one(plain, replace(plain, event=odd)) == "insert", "it would be taken for two"


# ---------------------------------------------------------------- what is read


def test_every_column_that_is_claimed_becomes_what_it_is_called() -> None:
    number = count(1)
    texts = {
        column.name: f"{column.name} {next(number)}" for column in CLAIMED if column.kind in (Kind.NAME, Kind.LABEL)
    }
    times = {
        column.name: NOON.replace(tzinfo=None) + timedelta(days=next(number))
        for column in CLAIMED
        if column.kind is Kind.INSTANT
    }
    numbers = {column.name: next(number) for column in CLAIMED if column.kind in (Kind.SMALL, Kind.NUMBER, Kind.LARGE)}
    others = {"payload": '"p"', "payload_bytes": None, "headers": '{"a":"b"}', "done_handlers": '["h"]'}
    row = texts | times | numbers | others
    assert set(row) == {column.name for column in CLAIMED}
    values = (*(row[column.name] for column in CLAIMED), 41, True, None)
    now = NOON + timedelta(days=100)
    request = ClaimRequest("alice", 1, timedelta(1), 5.0)
    claimed = claimed_of(values, request, IN_UTC, now)

    def at(name: str) -> datetime:
        return times[name].replace(tzinfo=UTC)

    assert isinstance(claimed, Claimed)
    got: EventEnvelope = claimed.event
    for name in (
        "event_id",
        "event_type",
        "aggregate_type",
        "aggregate_id",
        "tenant_id",
        "content_type",
        "payload_version",
    ):
        assert getattr(got, name) == row[name]
    assert (got.key, got.payload, dict(got.headers)) == (row["event_key"], '"p"', {"a": "b"})
    assert (got.occurred_at, got.available_at) == (at("occurred_at"), at("scheduled_at"))
    assert claimed.lease.key == (row["event_id"], row["handler_id"])
    assert (claimed.lease.owner, claimed.lease.epoch, claimed.lease.deadline) == ("alice", 42, 5.0)
    assert (claimed.position, claimed.attempts, claimed.abandoned) == (
        row["position"],
        row["attempts"],
        row["abandoned"],
    )
    assert (claimed.created_at, claimed.age) == (at("created_at"), now - at("created_at"))
    assert (claimed.done_handlers, claimed.is_suspect) == (("h",), True)


def test_rows_are_read_where_they_have_it() -> None:
    names = [column.name for column in CLAIMED]
    assert [names[place] for place in (POSITION, EVENT_ID, EVENT_KEY, AVAILABLE_AT)] == [
        *("position", "event_id", "event_key", "available_at")
    ]
    behind = ["epoch", "is_takeover", "now", "next_due"]
    assert [(*names, *behind)[place] for place in (NOW, NEXT_DUE)] == ["now", "next_due"]
