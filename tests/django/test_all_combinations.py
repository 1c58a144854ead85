"""Blocks in blocks that fail or not, functions that raise, commits that fail: delivered is what others could see."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from django.db import DatabaseError, connections, transaction
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from aftercommit import EventEnvelope
from tests.databases import Database
from tests.django.shop.models import Order

Make = Callable[..., Any]


class Undo(Exception):
    """Rolls a block back."""


class Write(NamedTuple):
    """One event."""


class Raising(NamedTuple):
    """A function for on_commit that raises."""


class Failing(NamedTuple):
    """A statement that fails, in a block of its own or in the open one; the program goes on all the same."""

    in_block: bool


class Orphan(NamedTuple):
    """An order of nobody: COMMIT refuses it, or the statement does."""


class Block(NamedTuple):
    steps: list[Any]
    fails: bool
    has_savepoint: bool


leaves = st.sampled_from([Write] * 5 + [Raising, Orphan, lambda: Failing(True), lambda: Failing(False)]).map(
    lambda make: make()
)


def blocks(inner: st.SearchStrategy[Any], *, smallest: int = 0) -> st.SearchStrategy[Block]:
    """Most of them go well: in what fails nothing is left to be seen."""
    fails = st.sampled_from([False, False, True])
    return st.builds(Block, st.lists(inner, min_size=smallest, max_size=5), fails, st.booleans())


programs = blocks(leaves | blocks(leaves | blocks(leaves)), smallest=1)


def boom() -> None:
    raise Undo


class Program:
    """Runs the steps on a database, as a user's code that catches what it can."""

    def __init__(self, outbox: Any, alias: str) -> None:
        self.outbox = outbox
        self.alias = alias

    def run(self, step: Any) -> None:
        match step:
            case Write():
                self.outbox.write("Placed", 1)
            case Raising():
                transaction.on_commit(boom, using=self.alias)
            case Orphan():
                Order.objects.using(self.alias).create(number=0, customer_id=404)
            case Failing(in_block):
                if in_block:
                    with transaction.atomic(using=self.alias):
                        self._fail()
                self._fail()
            case Block():
                self.block(step)

    def block(self, block: Block) -> None:
        with transaction.atomic(using=self.alias, savepoint=block.has_savepoint):
            for step in block.steps:
                try:
                    self.run(step)
                except (Undo, DatabaseError):
                    continue
            if block.fails:
                raise Undo

    def _fail(self) -> None:
        with connections[self.alias].cursor() as cursor:
            cursor.execute("SELECT * FROM nowhere")


# The table that they share is the point: no example may leave anything behind for the next.
@pytest.mark.parametrize("poller", [True, False], ids=["both ways", "hot path alone"])
def test_delivered_is_what_others_could_see(alias: str, make_outbox: Make, somebody: Database, poller: bool) -> None:
    delivered: list[str] = []
    unseen: list[str] = []
    outbox = make_outbox(alias, poller_enabled=poller, worker_count=1)

    def handle(event: EventEnvelope) -> None:
        delivered.append(event.event_id)
        if not somebody.read("SELECT 1 FROM outbox_event WHERE event_id = ?", event.event_id):
            unseen.append(event.event_id)

    outbox.register("Placed", handle)
    outbox.start()

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(programs)
    @example(Block([Write(), Failing(in_block=False)], fails=False, has_savepoint=True))
    @example(Block([Raising(), Write(), Write()], fails=False, has_savepoint=True))
    @example(Block([Write(), Orphan()], fails=False, has_savepoint=True))
    @example(Block([Block([Write()], fails=True, has_savepoint=True), Write()], fails=False, has_savepoint=True))
    @example(Block([Block([Write()], fails=True, has_savepoint=False), Write()], fails=False, has_savepoint=True))
    def holds(program: Block) -> None:
        delivered.clear()
        with suppress(Undo, DatabaseError):
            Program(outbox, alias).block(program)
        visible = [row[0] for row in somebody.read("SELECT event_id FROM outbox_event ORDER BY position")]
        assert outbox.drain("20s").is_complete
        assert delivered == visible
        assert unseen == []
        assert outbox._engine.dispatcher.lanes._reserved == 0
        somebody.write("DELETE FROM outbox_event")

    holds()
