"""What is undone below the library that steers a transaction is delivered by nobody; the table is the judge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.util import await_only

from aftercommit import EventEnvelope, TransactionEnded, UnsupportedTransaction
from tests.support import Collector, World
from tests.transactions.driver_kit import Caller
from tests.transactions.kit import free_slots
from tests.transactions.sqlalchemy_kit import Shop, plain

#: Said to the library, or to the driver's connection below it.
TEXTS = {
    "savepoint": ("SAVEPOINT mine",),
    "back": ("ROLLBACK TO SAVEPOINT mine",),
    "rollback": ("ROLLBACK",),
    "anew": ("ROLLBACK", "BEGIN"),
    "statement": ("SELECT 1",),
    "bad statement": ("SELECT nothing FROM nowhere",),
}

STEPS = ("write", "write", *[(where, words) for where in ("library", "driver") for words in TEXTS])

#: For each database and driver.
EXAMPLES = 20

#: Each of them has been seen to deliver what no table had.
SEEN = (
    [("library", "savepoint"), "write", ("library", "back")],
    ["write", ("library", "rollback")],
    ["write", ("library", "rollback"), ("library", "statement"), "write"],
    ["write", ("driver", "rollback"), ("library", "statement")],
    ["write", ("driver", "anew"), "write"],
    ["write", ("driver", "savepoint"), "write", ("driver", "back")],
    ["write", ("driver", "bad statement")],
)

Program = list[Any]


def programs() -> list[Program]:
    """Those that were seen, and others by chance."""
    chosen = list(SEEN)

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(st.sampled_from(STEPS), min_size=1, max_size=10))
    def choose(program: Program) -> None:
        chosen.append(program)

    choose()
    return chosen


def judging(world: World, outbox: Any, seen: Collector) -> list[str]:
    """Let the outbox's handler of "Seen" look for the rows of what it gets; those that had none."""
    early: list[str] = []

    def look(envelope: EventEnvelope) -> None:
        if not world.rows("SELECT event_id FROM outbox_event WHERE event_id = ?", envelope.event_id):
            early.append(envelope.payload_json)
        seen.add(envelope.payload_json.strip('"'))

    outbox.register("Seen", look)
    return early


def committed(world: World) -> list[str]:
    return sorted(row["payload"].strip('"') for row in world.rows())


# ---------------------------------------------------------------- sessions


def raw_of(session: Session) -> Any:
    return session.connection().connection.driver_connection


def on_driver(session: Session, sql: str) -> None:
    """Below the session, as the driver has it."""
    raw = raw_of(session)
    if isawaitable(running := _run(raw, sql)):
        await_only(running)


def _run(raw: Any, sql: str) -> Any:
    if hasattr(raw, "execute"):
        return raw.execute(sql)
    cursor = raw.cursor()
    return cursor.execute(sql)


def play(session: Session, write: Callable[[str], Any], program: Program, name: str) -> None:
    """As careless as a user can be: every error is passed over."""
    for number, step in enumerate(program):
        with suppress(Exception):
            if step == "write":
                write(f"{name}.{number}")
                session.flush()
                continue
            where, words = step
            for sql in TEXTS[words]:
                session.execute(text(sql)) if where == "library" else on_driver(session, sql)
    try:
        session.commit()
    except Exception:
        session.rollback()


def test_what_a_session_delivers_is_what_was_committed(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox()
        early = judging(shop.world, outbox, shop.seen)
        await outbox.start()
        free = free_slots(outbox)
        for number, program in enumerate(programs()):

            def work(session: Session, number: int = number, program: Program = program) -> None:
                def write(name: str) -> None:
                    plain(outbox).write("Seen", f'"{name}"', tx=session)

                play(session, write, program, str(number))

            await shop.in_session(work)
            expected = committed(shop.world)
            await shop.seen.reach(len(expected))
            await shop.world.until_settled(len(expected))
            assert (sorted(shop.seen), early) == (expected, []), program
            assert free_slots(outbox) == free, program

    shop.run(scenario)
