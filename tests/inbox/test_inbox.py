"""The table of an inbox, what leads to it, its names, and how it is cleaned up."""

from __future__ import annotations

import inspect
import re
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import (
    AsyncInbox,
    AsyncOutbox,
    ColourMismatch,
    Inbox,
    InvalidName,
    InvalidOption,
    Outbox,
    SchemaMismatch,
    SchemaMissing,
    UnknownStore,
    UnsupportedTransaction,
)
from aftercommit.inbox.base import receipt_of
from aftercommit.stores.cockroachdb.dialect import PSYCOPG as COCKROACH
from aftercommit.stores.mysql.dialect import DIALECT as MYSQL
from aftercommit.stores.postgres.dialect import PSYCOPG
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER
from aftercommit.stores.tidb.dialect import DIALECT as TIDB
from tests.conftest import on_both_mysqls
from tests.inbox.kit import Billing
from tests.support import World

# ---------------------------------------------------------------- the table


def test_a_missing_table_is_told_with_the_way_to_make_it(server_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(server_world, create_schema=False)
        server_world.change("CREATE TABLE bill (name VARCHAR(50))")
        await billing.outbox.create_schema()
        for way in ("own", "outbox", "driver"):
            with pytest.raises(SchemaMissing, match=r"inbox\.create_schema"):
                await billing.consume("o-1", way)
        with pytest.raises(SchemaMissing):
            await billing.inbox.seen("o-1", consumer="billing")

        await billing.inbox.create_schema()
        await billing.inbox.create_schema()  # again is fine

        assert await billing.consume("o-1")

    server_world.run(scenario)


def test_the_script_makes_what_create_schema_makes(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world, create_schema=False)
        await billing.outbox.create_schema()
        for statement in billing.inbox.schema_sql().split(";\n"):
            if statement.strip():
                any_world.change(statement.replace("?", "%"))
        any_world.change("CREATE TABLE bill (name VARCHAR(50))")
        assert await billing.consume("o-1")
        assert not await billing.consume("o-1")

    any_world.run(scenario)


def test_another_programs_table_is_left_alone(world: World) -> None:
    async def scenario() -> None:
        await world.outbox().create_schema()
        world.change("CREATE TABLE inbox (mail TEXT)")
        with pytest.raises(SchemaMismatch, match="table="):
            await Billing(world).inbox.create_schema()
        other = Billing(world, table="shop_inbox")
        world.change("CREATE TABLE bill (name TEXT)")
        assert await other.consume("o-1")

    world.run(scenario)


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with Inbox(f"sqlite:///{tmp_path}/none.db", create_schema=False) as inbox, pytest.raises(SchemaMissing):
        inbox.seen("o-1", consumer="billing")
    assert not list(tmp_path.iterdir())


def test_a_schema_of_its_own(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA IF NOT EXISTS "Billing"')
        inbox = Inbox(postgres_url, schema="Billing", table="Received", create_schema=True)
        with inbox, inbox.once("o-1", consumer="billing") as first:
            assert first
        assert connection.execute('SELECT count(*) FROM "Billing"."Received"').fetchall() == [(2,)]
        connection.execute('DROP SCHEMA "Billing" CASCADE')


# ---------------------------------------------------------------- what leads to it


def test_what_cannot_keep_an_inbox_is_refused(redis_url: str) -> None:
    with pytest.raises(UnknownStore, match="runs no SQL"):
        Inbox(redis_url)
    with pytest.raises(ColourMismatch):
        Inbox(AsyncOutbox("sqlite://"))
    with pytest.raises(InvalidOption, match="schemas"):
        Inbox("sqlite://", schema="billing")
    with pytest.raises(InvalidOption, match="table is"):
        Inbox("sqlite://", table="inbox; DROP TABLE bill")


def test_a_transaction_of_another_outbox_on_the_same_database(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        second = any_world.outbox(table="second_event", create_schema=True)

        for _ in range(2):
            async with second.transaction() as opened:
                tx = getattr(opened, "plain", opened)
                async with billing.inbox.once("o-1", consumer="billing", tx=tx) as first:
                    if first:
                        await second.write("BillWritten", "{}", tx=tx)

        assert len(any_world.rows("SELECT * FROM second_event")) == 1

    any_world.run(scenario)


def test_a_transaction_of_an_outbox_elsewhere_is_refused(world: World) -> None:
    async def scenario() -> None:
        billing = Billing(world)
        elsewhere = world.outbox(f"sqlite:///{world.folder}/elsewhere.db")
        async with elsewhere.transaction() as tx:
            with pytest.raises(UnsupportedTransaction, match="another database"):
                async with billing.inbox.once("o-1", consumer="billing", tx=getattr(tx, "plain", tx)):
                    raise AssertionError("the block has begun")

    world.run(scenario)


def test_both_colours_have_the_same_methods() -> None:
    for name, method in inspect.getmembers(Inbox, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(AsyncInbox, name)
            assert list(inspect.signature(method).parameters) == list(inspect.signature(other).parameters), name
    assert {each for each in dir(Inbox) if each[0] != "_"} == {each for each in dir(AsyncInbox) if each[0] != "_"}


# ---------------------------------------------------------------- isolation


def test_postgres_tells_of_a_snapshot_that_is_too_old(postgres_url: str) -> None:
    """Under REPEATABLE READ nobody can be told that somebody else was first; when it comes again he is."""
    with Inbox(postgres_url, table="isolated", create_schema=True) as inbox, psycopg.connect(postgres_url) as theirs:
        inbox.create_schema()
        theirs.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        theirs.execute("SELECT 1")  # the snapshot is taken
        with inbox.once("o-1", consumer="billing") as first:
            assert first
        with pytest.raises(psycopg.errors.SerializationFailure), inbox.once("o-1", consumer="billing", tx=theirs):
            raise AssertionError("the block has begun")
        theirs.rollback()
        with inbox.once("o-1", consumer="billing", tx=theirs) as first:
            assert not first


@on_both_mysqls
@pytest.mark.parametrize("level", ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"])
def test_mysql_sees_what_was_committed_behind_its_snapshot(mysql_url: str, level: str) -> None:
    with (
        Inbox(mysql_url, table="isolated", create_schema=True) as inbox,
        Outbox(mysql_url, create_schema=True) as outbox,
    ):
        inbox.forget("o-1", consumer="billing")
        with outbox.transaction(isolation=level) as tx:
            tx.execute("SELECT count(*) FROM outbox_event")  # the snapshot is taken
            with inbox.once("o-1", consumer="billing") as first:
                assert first
            with inbox.once("o-1", consumer="billing", tx=tx) as first:
                assert not first


# ---------------------------------------------------------------- names

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=255)


@given(first=TEXT, second=TEXT)
def test_two_ids_are_the_same_where_python_says_so(first: str, second: str) -> None:
    """No collation, blank, case or accent makes one of two."""
    for message_id in (first, second):
        with _inbox.once(message_id, consumer="property") as it:
            assert bool(it) is (message_id not in _known)
            assert it.message_id == message_id
        _known.add(message_id)


_inbox, _known = Inbox("sqlite://"), set[str]()


def test_nor_does_a_server_take_two_ids_for_one(server_world: World) -> None:
    ids = ["a", "A", "a ", " a", "ä", "a\u0308", "\uff41", "ss", "ß", "1", "01", "%", "'", '"', "\\", "\t", "x" * 255]

    async def scenario() -> None:
        billing = Billing(server_world)
        await billing.open()
        for expected in (True, False):
            for message_id in ids:
                async with billing.inbox.once(message_id, consumer="Ä" * 128) as first:
                    assert bool(first) is expected, message_id

    server_world.run(scenario)


@pytest.mark.parametrize(
    ("given_as", "kept"),
    [
        ("o-1", "o-1"),
        (b"o-1", "o-1"),
        (bytearray(b"o-1"), "o-1"),
        (17, "17"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    ],
)
def test_an_id_is_text_bytes_a_number_or_a_uuid(given_as: Any, kept: str) -> None:
    assert receipt_of(given_as, "billing").message_id == kept


@pytest.mark.parametrize("bad", ["", b"", None, True, 1.5, b"\xff\xfe", "x" * 256, "a\x00b", "\ud800", object()])
def test_what_identifies_nothing_is_refused_before_anything_begins(bad: Any) -> None:
    with pytest.raises(InvalidName, match="message_id"):
        _inbox.once(bad, consumer="billing")
    with pytest.raises(InvalidName, match="consumer"):
        _inbox.once("o-1", consumer="" if bad is None else None)


# ---------------------------------------------------------------- cleaning up


def test_purge_forgets_what_is_old_in_batches(any_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aftercommit.inbox.store.PURGED_AT_ONCE", 2)

    async def scenario() -> None:
        billing = Billing(any_world, retention=timedelta(days=7))
        await billing.open()
        for number in range(5):
            await billing.consume(f"old-{number}")
        any_world.change("UPDATE inbox SET received_at = ? WHERE consumer <> ''", any_world.now() - 8 * 86400 * 10**6)
        await billing.consume("new")

        assert await billing.inbox.purge(older_than="30d") == 0
        assert await billing.inbox.purge() == 5
        assert await billing.inbox.purge() == 0

        assert billing.received() == [("billing", "new")]
        assert await billing.inbox.purge(older_than=0) == 1
        assert await billing.consume("new"), "and the table is still the inbox's"

    any_world.run(scenario)


def test_purge_wants_to_know_how_old() -> None:
    with pytest.raises(InvalidOption, match="retention"):
        _inbox.purge()


def test_forget_lets_a_message_be_the_first_again(any_world: World) -> None:
    async def scenario() -> None:
        billing = Billing(any_world)
        await billing.open()
        await billing.consume("o-1")
        assert await billing.inbox.forget("o-1", consumer="billing")
        assert not await billing.inbox.forget("o-1", consumer="billing")
        assert await billing.consume("o-1")

    any_world.run(scenario)


# ---------------------------------------------------------------- the statements

DIALECTS = {
    "sqlite": SQLITE,
    "postgres": PSYCOPG,
    "mysql": MYSQL,
    "tsql": SQLSERVER,
    "cockroachdb": COCKROACH,
    "tidb": TIDB,
}


def test_every_database_has_the_same_statements() -> None:
    has_begin = {"sqlite", "tsql"}
    expected = {
        *("create", "forget", "purge", "record", "seen", "whose"),
        *("savepoint", "release", "undo"),
    }
    for name, dialect in DIALECTS.items():
        found = Statements(dialect, TableNames("inbox"), "inbox")
        assert set(found) == expected | ({"begin"} if name in has_begin else set()), name
        for statement in found.values():
            assert "{" not in statement.sql


def test_those_of_sql_server_are_t_sql() -> None:
    """There is no server to be had everywhere."""
    found = Statements(SQLSERVER, TableNames("inbox", "shop", SQLSERVER.quotes), "inbox")
    throw = re.compile(r"IF @@TRANCOUNT = 0 THROW[^;]*;?")
    for name, statement in found.items():
        assert statement.sql.count("?") == len(statement.names) == len(set(statement.names)), name
        if name in ("savepoint", "undo"):  # which the grammar does not know
            continue
        for each in throw.sub("", statement.sql).split(";\n"):
            parsed = [one for one in sqlglot.parse(each, dialect="tsql") if one is not None]
            assert not [one for whole in parsed for one in whole.find_all(sqlglot.exp.Command)], name
