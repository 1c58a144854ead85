"""A store without SQL keeps the core of the contract: nothing in the suite, or in the outbox, asks for more."""

from __future__ import annotations

import copy
from collections.abc import Coroutine
from typing import Any

import pytest

from aftercommit import InvalidOption, Outbox, UnsupportedTransaction
from aftercommit.runtime.threads import run
from aftercommit.testing import CoreConformance
from examples.memory_store.rows import Rows, now
from examples.memory_store.store import MemoryStore


class TestMemory(CoreConformance):
    """Writing, scheduling, fidelity, claiming, sharing, settling, fencing, records and purging."""

    skips_locked = False  # there is one lock for all

    @pytest.fixture(autouse=True)
    def database(self) -> None:
        self.tables: dict[str, Rows] = {}

    def make_store(self, *, table: str = "outbox_event", **options: Any) -> MemoryStore:
        return MemoryStore(self.tables.setdefault(table, Rows()), **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run(coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.tables["outbox_event"].where(lambda _: True))

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        changed = self.tables["outbox_event"].where(lambda row: event_id in (None, row["event_id"]))
        assert changed
        for row in changed:
            row.update(columns)

    def now(self) -> int:
        return now()


def test_an_outbox_delivers_from_it() -> None:
    seen = []
    outbox = Outbox(MemoryStore(Rows()))
    outbox.register("OrderPlaced", lambda event: seen.append(event.payload_json))
    with outbox.transaction():
        outbox.write("OrderPlaced", {"order": 7})
        with pytest.raises(RuntimeError), outbox.transaction():
            outbox.write("OrderPlaced", {"order": 8})
            raise RuntimeError
    assert outbox.drain().delivered == 1
    assert seen == ['{"order":7}']
    assert outbox.stats().backlog.new == 0
    outbox.close()


def test_what_it_cannot_do_is_refused_by_name() -> None:
    outbox = Outbox(MemoryStore(Rows()))
    with pytest.raises(InvalidOption, match="knows no fleet"):
        outbox.cluster()
    with pytest.raises(UnsupportedTransaction, match=r"tx is a builtins\.object"):
        outbox.write("OrderPlaced", {}, tx=object())
    with pytest.raises(InvalidOption, match="the ready store MemoryStore has ordered=False"):
        Outbox.ordered(MemoryStore(Rows()))


def test_a_session_of_sqlalchemy_is_refused_by_name() -> None:
    orm = pytest.importorskip("sqlalchemy.orm")
    outbox = Outbox(MemoryStore(Rows()))
    with pytest.raises(UnsupportedTransaction, match=r"MemoryStore .* is not written to through SQLAlchemy"):
        outbox.write("OrderPlaced", {}, tx=orm.Session())
