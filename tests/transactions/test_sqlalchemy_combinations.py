"""The promise of the edge, over all combinations: what is delivered is what another connection could see committed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from aftercommit import EventEnvelope
from tests.transactions.kit import Deliberate, free_slots, hot_count
from tests.transactions.sqlalchemy_kit import Customer, Shop, orphan, plain, sync_engine

#: Small letters act on the transaction that is innermost.
STEPS = (
    "write",
    "flush",
    "begin inner",
    "commit inner",
    "rollback inner",
    "commit",
    "rollback",
    "orphan",  # a constraint that fails at COMMIT, where it is deferred; elsewhere nothing
    "bad statement",
    "bad flush",
    "raise before_commit",
    "raise after_flush",
    "raise after_commit",
    "raise at COMMIT",
    "expunge",
    "close",
)

#: For each database and driver.
EXAMPLES = 40

programs = st.lists(st.sampled_from(STEPS), min_size=1, max_size=14)


@dataclass
class Play:
    """One program on one session, as careless as a user can be: every error is passed over."""

    session: Session
    write: Callable[[str], None]
    engine: Any
    raising: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for hook in ("before_commit", "after_flush", "after_commit"):
            event.listen(self.session, hook, self._raiser(f"raise {hook}"))
        self._commit = self.engine.dialect.do_commit
        self.engine.dialect.do_commit = self._commit_or_fail

    def _raiser(self, step: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if self.raising.pop(step, 0):
                raise Deliberate(step)

        return hook

    def _commit_or_fail(self, connection: Any) -> None:
        """As a database does whose constraints are looked at last: the COMMIT itself fails, and all is undone."""
        if self.raising.pop("raise at COMMIT", 0):
            connection.rollback()
            raise self.engine.dialect.loaded_dbapi.IntegrityError("at COMMIT")
        self._commit(connection)

    def run(self, program: list[str], name: str) -> None:
        for number, step in enumerate(program):
            with suppress(SQLAlchemyError, Deliberate, RuntimeError):
                self.do(step, f"{name}.{number}")
        with suppress(SQLAlchemyError, Deliberate):
            self.commit()
        with suppress(SQLAlchemyError):  # of a savepoint that could not be released; the next close() is clean
            self.session.close()
        self.session.close()
        self.engine.dialect.do_commit = self._commit

    def commit(self) -> None:
        """SQLite keeps a transaction open whose COMMIT failed, and a session that is only closed would give it back to
        the pool like that."""
        try:
            self.session.commit()
        except SQLAlchemyError:
            self.session.rollback()
            raise

    def do(self, step: str, name: str) -> None:
        session = self.session
        match step:
            case "write":
                self.write(name)
            case "begin inner":
                session.begin_nested()
            case "commit inner" | "rollback inner":
                inner = session.get_nested_transaction()
                if inner is not None:
                    inner.commit() if step == "commit inner" else inner.rollback()
            case "commit":
                self.commit()
            case "orphan":
                session.execute(orphan())
            case "bad statement":
                session.execute(text("SELECT nothing FROM nowhere"))
            case "bad flush":
                session.add_all([Customer(id=-1), Customer(id=-1)])
                session.flush()
            case "expunge":
                session.expunge_all()
            case raising if raising.startswith("raise"):
                self.raising[raising] = 1
            case _:
                getattr(session, step)()


@pytest.mark.filterwarnings("ignore:Session's state has been changed on a non-active transaction")
def test_what_is_delivered_is_what_is_committed(shop: Shop) -> None:
    """Whatever is rolled back, fails or raises; and no handler starts before its row can be seen."""
    early: list[str] = []

    async def scenario() -> None:
        outbox = shop.outbox(poller_enabled=True, poll_interval="60s")

        def look(envelope: EventEnvelope) -> None:
            if not shop.world.rows("SELECT event_id FROM outbox_event WHERE event_id = ?", envelope.event_id):
                early.append(envelope.payload_json)
            shop.seen.add(envelope.payload_json.strip('"'))

        outbox.register("Seen", look)
        await outbox.start()
        free = free_slots(outbox)
        examples: list[list[str]] = []

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), database=None)
        @given(programs)
        def choose(program: list[str]) -> None:
            examples.append(program)

        choose()
        for number, program in enumerate(examples):

            def play(session: Session, number: int = number, program: list[str] = program) -> None:
                def write(name: str) -> None:
                    plain(outbox).write("Seen", f'"{name}"', tx=session)

                Play(session, write, sync_engine(shop.engine)).run(program, str(number))

            await shop.in_session(play)
            expected = shop.committed()
            assert hot_count(outbox) <= len(expected), program
            await shop.seen.reach(len(expected))
            assert sorted(shop.seen) == sorted(expected), program
            assert early == []
        await shop.world.until("SELECT count(*) = 0 FROM outbox_event WHERE status = 0")
        assert sorted(shop.seen) == sorted(shop.committed())

        def last(session: Session) -> None:  # what a session left behind is given back with the next write
            plain(outbox).write("Seen", '"last"', tx=session)
            session.commit()

        await shop.in_session(last)
        await shop.seen.reach(len(shop.committed()))
        assert free_slots(outbox) == free

    shop.run(scenario)
