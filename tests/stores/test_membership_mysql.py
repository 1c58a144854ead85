"""The fleet on MySQL and MariaDB: nobody waits for who stands still inside a transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from aftercommit.ports import Colour
from aftercommit.testing.kit import LEASE
from tests.stores.mysql_kit import DRIVERS, Scenario, Table, locked, made, played


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture(params=DRIVERS)
def play(request: pytest.FixtureRequest, table: Table) -> Callable[[Scenario], Any]:
    colour: Colour = DRIVERS[request.param]
    return partial(played, table, colour)


def test_a_take_passes_over_what_somebody_has_locked(play: Any, table: Table) -> None:
    """It waits for nobody, and takes the rest."""

    async def scenario(store: Any) -> None:
        await store.open()
        with locked(table.url, "UPDATE outbox_partition SET owner = 'bob' WHERE partition_no < 100"):
            taken = await store.membership.take("alice", dict.fromkeys(range(256), 0), LEASE)
        assert taken == dict.fromkeys(range(100, 256), 1)

    play(scenario)
