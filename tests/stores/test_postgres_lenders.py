"""A pool of the outbox's own finds out whether a pooler stands before the server, and opens nothing twice for that."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit.runtime.threads import run
from aftercommit.stores.postgres.lenders import OwnPool
from aftercommit.stores.sql.connections import ThreadTurn
from tests.stores.postgres_kit import Way


class Connected:
    """What a pool needs of a connection: whether it prepares, and what stands before the server."""

    turn = ThreadTurn
    home = int
    is_gone = is_begun = has_left = False

    def __init__(self, prepares: bool, is_direct: bool | Exception) -> None:
        self.prepares, self._is_direct = prepares, is_direct

    async def is_direct(self) -> bool:
        if isinstance(self._is_direct, Exception):
            raise self._is_direct
        return self._is_direct

    async def leave(self) -> None:
        self.has_left = True

    def drop(self) -> None:
        self.has_left = True


def pool_of(opened: list[Connected], *answers: bool | Exception, asks: bool = True) -> OwnPool:
    told = iter(answers)

    async def connect(prepares: bool) -> Any:
        opened.append(Connected(prepares, next(told)))
        return opened[-1]

    kind: Any = Connected
    return OwnPool(kind, connect, asks=asks)


@pytest.mark.parametrize(
    ("answers", "prepare", "left"),
    [
        pytest.param((True, True), [True, True], [False, False], id="direct"),
        pytest.param((False, False, False), [True, False, False], [True, False, False], id="pooler"),
    ],
)
def test_the_first_connection_is_kept_unless_a_pooler_is_found(
    answers: tuple[bool, ...], prepare: list[bool], left: list[bool]
) -> None:
    opened: list[Connected] = []
    pool = pool_of(opened, *answers)
    taken = [run(pool.take()) for _ in range(2)]
    assert taken == [each for each in opened if not each.has_left]
    assert [each.prepares for each in opened] == prepare
    assert [each.has_left for each in opened] == left
    assert pool.is_direct is answers[0]


def test_one_that_does_not_answer_is_given_up_and_the_next_is_asked() -> None:
    opened: list[Connected] = []
    pool = pool_of(opened, ConnectionError("gone"), True)
    with pytest.raises(ConnectionError, match="gone"):
        run(pool.take())
    assert run(pool.take()) is opened[1]
    assert [each.has_left for each in opened] == [True, False]


def test_nothing_is_prepared_where_nothing_is_asked() -> None:
    opened: list[Connected] = []
    run(pool_of(opened, True, asks=False).take())
    assert [each.prepares for each in opened] == [False]


def test_a_store_that_has_opened_has_one_session(way: Way) -> None:
    async def scenario() -> None:
        async with way.opened():
            assert len(way.table.sessions(way.mark)) == 1

    way.run(scenario)
