"""SQLite keeps the contract of stores, with either executor."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from aftercommit.events.claims import Settlement, Undecodable
from aftercommit.events.outcome import DONE, Dead, Retry
from aftercommit.events.records import EventFilter
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run
from aftercommit.stores.detect import open_store
from aftercommit.testing import SqlConformance, StoreConformance
from aftercommit.testing.hooks import played
from aftercommit.testing.kit import event, ids, insert, settle, take
from aftercommit.testing.settling import MINUTE
from tests.stores.kit import alter, store_at
from tests.stores.sqlite_hooks import SqliteHooks


class TestSqlite(SqliteHooks, SqlConformance, StoreConformance):
    """The contract, and what only SQLite can do to a row."""

    @pytest.fixture(scope="session")
    @staticmethod
    def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A file with empty tables; copying it is cheaper than making them."""
        path = tmp_path_factory.mktemp("template") / "outbox.db"
        store = store_at(path)
        run(store.open())
        run(store.close())
        return path

    @pytest.fixture(params=list(Colour), ids=lambda colour: colour.value, autouse=True)
    def database(self, request: pytest.FixtureRequest, tmp_path: Path, template: Path) -> None:
        self.colour: Colour = request.param
        self.path = Path(shutil.copy(template, tmp_path))

    # ------------------------------------------------------------ only here

    @played
    async def test_a_failing_statement_undoes_the_whole_group(self) -> None:
        """By a trigger in the middle of the group's statements."""
        store = await self.opened()
        await insert(store, *[event() for _ in range(3)])
        claimed = await take(store)
        alter(
            self.path,
            "CREATE TRIGGER no_retry BEFORE UPDATE ON outbox_event WHEN new.status = 2 AND new.attempts = 1"
            " BEGIN SELECT RAISE(ABORT, 'not today'); END",
        )
        before = self.rows()
        outcomes = [DONE, Retry(MINUTE, "r"), Dead("d")]
        group = [Settlement(row.lease, each) for row, each in zip(claimed, outcomes, strict=True)]
        with pytest.raises(sqlite3.IntegrityError, match="not today"):
            await store.settle(group)
        assert self.rows() == before
        alter(self.path, "DROP TRIGGER no_retry")
        assert not await store.settle(group)
        assert [row["status"] for row in self.rows()] == [1, 2, 3]

    @pytest.mark.parametrize(
        "damage",
        [
            "payload = CAST(x'7bff7d' AS TEXT)",
            "payload = x'7b7d'",
            "headers = CAST(x'ff' AS TEXT)",
            "event_type = CAST(x'41ff' AS TEXT)",
            "occurred_at = 'yesterday'",
            "occurred_at = 9223372036854775807",
            "scheduled_at = -9223372036854775807",
            "created_at = -9000000000000000000",
        ],
    )
    @played
    async def test_a_damaged_row_is_claimed_as_such_and_keeps_nobody_waiting(self, damage: str) -> None:
        """TC-482"""
        store = await self.opened()
        damaged, sound = event(), event()
        await insert(store, damaged, sound)
        alter(self.path, f"UPDATE outbox_event SET {damage} WHERE event_id = ?", damaged.event_id)
        bad, good = await take(store)
        assert isinstance(bad, Undecodable)
        assert good.event == sound
        assert await settle(store, bad.lease, Dead("UndecodableRow", counted=False))
        assert await settle(store, good.lease, DONE)
        assert await take(store) == []

    @pytest.mark.parametrize("kind", ["bytes", "shouting"])
    @played
    async def test_factories_of_the_users_connection_do_not_disturb_the_store(self, kind: str) -> None:
        """And the user still has them."""

        def row_factory(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
            return {"only": "the user's"}

        def connect() -> sqlite3.Connection:
            connection = sqlite3.connect(self.path, check_same_thread=False)
            connection.row_factory = row_factory
            connection.text_factory = bytes if kind == "bytes" else lambda raw: raw.decode().upper()
            return connection

        given = event(payload_json='{"a": "é"}', headers={"a": "b"}, aggregate_type="Order", aggregate_id="x")
        for turn in range(2):  # the second store finds the tables of the first
            store = open_store(connect, self.colour)
            self.stores = [store]
            await store.open()
            if not turn:
                await insert(store, given)
            (claimed,) = await take(store)
            assert claimed.event == given
            assert await settle(store, claimed.lease, Dead("no"))
            (dead,) = await store.records.query_dead(EventFilter(), 10)
            assert (dead.payload, dead.last_error) == ('{"a": "é"}', "no")
            assert (await store.records.backlog()).dead == 1
            assert await store.records.replay_after(EventFilter(), 0, 10) == (1, None)
            opened = await store.executor.begin()
            assert (await opened.query("SELECT 'text'")).rows == [{"only": "the user's"}]
            opened.connection.row_factory = None
            assert (await opened.query("SELECT 'text'")).rows == [(b"text" if kind == "bytes" else "TEXT",)]
            await opened.end()
            await store.close()
        assert ids([given]) == [self.row()["event_id"]]
