"""What a store says, and what it keeps, when its database is taken away under its hands."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from aftercommit.errors import SchemaMissing
from aftercommit.events.records import EventFilter
from aftercommit.ports import Colour
from aftercommit.stores.sql.rows import NEXT_DUE
from aftercommit.testing.kit import event, ids, look
from tests.stores.kit import alter, insert, run_in, store_at
from tests.stores.postgres_kit import Way


def test_rows_that_a_claim_has_leased_are_not_lost_to_the_look_behind_it(way: Way) -> None:
    """They would wait for their lease to run out, although nobody has died. Where the claim itself does not tell when
    the next row falls due: its answer is made as short as such a database's."""

    async def scenario() -> None:
        async with way.opened() as store:
            given = [event() for _ in range(3)]
            await insert(store, *given)
            fetch, cuts = store.executor.fetch, []

            async def cut(sql: str, *arguments: Any, **options: Any) -> Any:
                if "min(available_at)" in sql and "UPDATE" not in sql:
                    cuts.append(sql)
                    raise ConnectionResetError("cut")
                rows = await fetch(sql, *arguments, **options)
                return [tuple(row)[:NEXT_DUE] for row in rows] if "next_due" in sql else rows

            store.executor.fetch = cut
            claim = await look(store)
            assert (ids(claim.rows), claim.next_due, len(cuts)) == (ids(given), None, 1)
            with pytest.raises(Exception, match="cut"):
                await look(store)
            assert len(cuts) == 2, "with nothing in hand there is nothing to keep back"

    way.run(scenario)


def test_when_the_next_row_falls_due_comes_with_the_rows_and_needs_no_second_answer(way: Way) -> None:
    """Whoever is woken for a row waits for this."""

    async def scenario() -> None:
        async with way.opened() as store:
            await insert(store, event(), event(deliver_after=timedelta(hours=1)))
            fetch, asked = store.executor.fetch, []

            async def heard(sql: str, *arguments: Any, **options: Any) -> Any:
                asked.append(sql)
                return await fetch(sql, *arguments, **options)

            store.executor.fetch = heard
            claim = await look(store)
            assert (len(claim.rows), len(asked)) == (1, 1)
            assert claim.next_due is not None
            assert 3500 < claim.next_due <= 3600

    way.run(scenario)


@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
def test_a_table_that_is_gone_is_named_by_those_who_look_at_records(tmp_path: Path, colour: Colour) -> None:
    path = tmp_path / "outbox.db"

    async def scenario() -> None:
        store = store_at(path, colour)
        await store.open()
        alter(path, "DROP TABLE outbox_event")
        for work in (
            store.records.query_dead(EventFilter(), 1),
            store.records.replay("x", None),
            store.records.replay_after(EventFilter(), 0, 1),
            store.records.backlog(),
        ):
            with pytest.raises(SchemaMissing, match="outbox_event"):
                await work
        await store.close()

    run_in(colour, scenario())
