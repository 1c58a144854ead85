"""Effects exactly once: what a transactional handler does and the mark of its event are one transaction."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from aftercommit import (
    AsyncOutbox,
    Discard,
    EventMetadata,
    HandlerSet,
    InvalidHandler,
    InvalidOption,
    Outbox,
    OutboxTypedHandler,
    RetryAfter,
)
from aftercommit.errors import CommitRefused, EffectsUnsupported
from tests.handlers.effects_kit import Place, Say, counters, place_of, value_of
from tests.handlers.kit import OrderPlaced, write
from tests.stores.postgres_proxy import Proxy
from tests.support import PATIENCE, Signal, World
from tests.transactions.sqlalchemy_kit import WAYS

#: Every driver, with a transaction of the outbox's own and with a session.
PLACES = [f"{kind}-{way}" for kind in ("own", "session") for way in WAYS]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, _, way = request.param.partition("-")
    database = WAYS[way][0]
    servers = {"postgres": "postgres_url", "mariadb": "mysql_url"}
    url = request.getfixturevalue(servers[database]) if database in servers else None
    made = place_of(way, kind, tmp_path, url)
    if url is not None:
        made.world.somebody.clear()
    yield made
    if url is not None:
        made.world.somebody.close()


@pytest.fixture
def here(world: World) -> Place:
    """Either runtime over a SQLite file: for what is the same everywhere."""
    return Place(world, "own")


# ---------------------------------------------------------------- one transaction


def test_effects_mark_and_next_step_are_committed_together_and_an_error_takes_all_of_them_back(place: Place) -> None:
    """The next event of the saga goes the hot way, as any does whose commit is seen."""

    async def scenario() -> None:
        outbox = place.outbox()
        within: list[Any] = []

        async def first(event: Any, say: Say) -> None:
            await say.insert(1)
            await outbox.write("B", {})
            await outbox.write("B", {}, tx=say.tx)
            within.append((place.effects(), place.world.statuses()))
            if len(within) == 1:
                raise ValueError("no luck")

        async def second(event: Any, say: Say) -> None:
            await say.insert(2)

        place.handler(outbox, first)
        place.handler(outbox, second, "B")
        async with outbox:
            await write(outbox, "A")
            await place.world.until_settled(3)
            await until_counted(outbox, "dispatch_success", 3)
            count = counters(outbox)
        assert place.effects() == [1, 2, 2]
        assert within == [([], [0]), ([], [2])], "nobody sees any of it before the commit"
        assert [row["attempts"] for row in place.world.rows()] == [1, 0, 0]
        assert (count["dispatch_success"], count["dispatch_failure"], count["hot_enqueued"]) == (3, 1, 3)
        assert "lease_lost" not in count
        assert {row["locked_by"] for row in place.world.rows()} == {None}

    place.run(scenario)


def test_a_lost_lease_rolls_back_what_the_handler_did(place: Place, caplog: Any) -> None:
    """Somebody takes the row over while it is under way; his is the only effect."""

    class Thief:
        """Where writers exclude each other he comes before the transaction begins."""

        def before_dispatch(self, event: Any) -> None:
            if place.world.database == "sqlite":
                steal()

        def after_dispatch(self, event: Any, error: Any) -> None:
            errors.append(error)

    errors: list[Any] = []
    stolen: list[int] = []

    def steal() -> None:
        if not stolen:
            sql = "UPDATE outbox_event SET locked_by = 'thief', lease_epoch = lease_epoch + 1"
            stolen.append(place.world.change(sql))

    async def scenario() -> None:
        outbox = place.outbox(interceptors=[Thief()])

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)
            if place.world.database != "sqlite":
                steal()
            await outbox.write("B", {})

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await place.called.reach(1)
            await until_counted(outbox, "lease_lost", 1)
            assert (stolen, place.effects()) == ([1], [])
            assert [row["status"] for row in place.world.rows()] == [0], "no mark, and no next event"
            place.world.change("UPDATE outbox_event SET lease_until = 0")
            await outbox.poll()
            await place.world.until_settled(1)
        assert place.effects() == [1]
        assert [type(error).__name__ for error in errors if error] == ["LeaseLost"]
        assert [row["attempts"] for row in place.world.rows("SELECT * FROM outbox_event WHERE event_type = 'A'")] == [0]
        assert "was lost before" in caplog.text

    place.run(scenario)


async def until_counted(outbox: Any, name: str, count: int) -> None:
    await until_true(outbox, lambda: counters(outbox).get(name, 0) >= count)


async def until_true(outbox: Any, is_true: Callable[[], object]) -> None:
    """For what sends no signal."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.005)):
        if is_true():
            return
        await (asyncio.sleep(0.005) if isinstance(outbox, AsyncOutbox) else in_thread(pause))
    raise AssertionError(counters(outbox))


async def in_thread(pause: threading.Event) -> None:
    pause.wait(0.005)


def test_who_goes_on_over_a_broken_transaction_has_done_nothing(place: Place) -> None:
    """On PostgreSQL a failed statement breaks it; a session is broken by a failed flush, and by its rollback."""
    is_session, is_postgres = place.kind == "session", place.world.database == "postgres"
    if not is_session and not is_postgres:
        pytest.skip("there a failed statement undoes itself alone")

    async def scenario() -> None:
        outbox = place.outbox()

        async def handle(event: Any, say: Say) -> None:
            await say.insert(len(place.called))
            if len(place.called) == 1:
                if is_postgres:
                    with pytest.raises(Exception, match="no_such_table"):
                        await say("SELECT * FROM no_such_table")
                else:
                    await value_of(say.tx.rollback())
                    await say.insert(7)

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await place.world.until_settled(1)
        assert place.effects() == [2]
        assert [row["attempts"] for row in place.world.rows()] == [1]

    place.run(scenario)


@pytest.mark.parametrize("how", ["commit", "rollback"])
def test_the_handler_does_not_end_its_transaction(here: Place, how: str) -> None:
    async def scenario() -> None:
        outbox = here.outbox(retry_policy="no_retry")
        caught: list[Any] = []

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)
            try:
                getattr(say.tx, how)()
            except CommitRefused as error:
                caught.append(error)
            async with outbox.transaction():  # a savepoint
                await say.insert(2)

        here.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await here.world.until_settled(1)
        assert [error.code for error in caught] == ["AC071"]
        assert here.effects() == [1, 2]

    here.run(scenario)


def test_a_session_is_committed_by_the_outbox_alone(tmp_path: Path) -> None:
    place = place_of("sqlite-threads", "session", tmp_path, None)

    async def scenario() -> None:
        outbox = place.outbox()

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)
            with say.tx.begin_nested():
                await say.insert(2)
            with pytest.raises(CommitRefused, match=r"session.commit\(\)"):
                say.tx.commit()

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await place.world.until_settled(1)
        assert place.effects() == [1, 2]

    place.run(scenario)


# ---------------------------------------------------------------- what is not done


def test_what_is_deferred_or_discarded_leaves_no_effect(here: Place) -> None:
    async def scenario() -> None:
        outbox = here.outbox()

        async def defer(event: Any, say: Say) -> object:
            await say.insert(len(here.called))
            return RetryAfter(0) if len(here.called) == 1 else None

        async def discard(event: Any, say: Say) -> None:
            await say.insert(7)
            raise Discard("not wanted")

        here.handler(outbox, defer)
        here.handler(outbox, discard, "B")
        async with outbox:
            await write(outbox, "A")
            await here.world.until_settled(1)
            await write(outbox, "B")
            await here.world.until_settled(2)
        assert here.effects() == [2]
        assert [row["attempts"] for row in here.world.rows()] == [0, 0]

    here.run(scenario)


def test_a_fallback_follows_upon_what_was_rolled_back(here: Place) -> None:
    async def scenario() -> None:
        outbox, seen = here.outbox(retry_policy="no_retry"), []

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)
            raise ValueError("no luck")

        @here.handler(outbox, handle).fallback
        def failed(event: Any, failure: Any) -> None:
            seen.append((failure.handler_id, here.effects()))

        async with outbox:
            await write(outbox, "A")
            await here.world.until_settled(1)
        assert seen == [("A", [])]

    here.run(scenario)


def test_what_is_past_its_time_is_rolled_back_whenever_it_ends(here: Place) -> None:
    """Nobody can end a sync function. It goes on, and may not commit."""
    ended = Signal()

    async def scenario() -> None:
        outbox = here.outbox()
        may_end = Signal()

        async def handle(event: Any, say: Say) -> None:
            if len(here.called) > 1:
                await say.insert(2)
                return
            try:
                await say.insert(1)
                await may_end.wait()
            finally:
                ended.set()

        # Long enough for a busy machine to begin in, which is the first attempt then.
        here.handler(outbox, handle, timeout="1s", retry={"policy": "fixed", "delay": "1ms"})
        async with outbox:
            await write(outbox, "A")
            await here.called.reach(1)
            if not here.world.is_async:  # it is left behind, and has the only writer's place
                await until_true(outbox, lambda: outbox._engine.settler.unsettled)
                may_end.set()
            await ended.wait()
            may_end.set()
            await here.world.until_settled(1)
        assert here.effects() == [2]
        assert [row["attempts"] for row in here.world.rows()] == [1]

    here.run(scenario)


def test_close_interrupts_and_gives_back(tmp_path: Path) -> None:
    place = Place(World("asyncio", tmp_path), "own")

    async def scenario() -> None:
        outbox = place.outbox(drain_timeout=0)

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)
            if len(place.called) == 1:
                await asyncio.Event().wait()

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await place.called.reach(1)
        assert (place.effects(), place.world.statuses()) == ([], [0])
        await outbox.drain()
        assert (place.effects(), place.world.statuses()) == ([1], [1])

    place.run(scenario)


# ---------------------------------------------------------------- beside others


def test_of_several_handlers_of_one_row_each_is_done_once(here: Place) -> None:
    """The row was written by a process without handlers. What one has committed is not done again when another fails,
    although the lease stands until all are done."""

    async def scenario() -> None:
        writer = here.world.outbox(wiring="writer_only")
        await write(writer, "A")
        outbox, seen = here.outbox(), []
        within: list[Any] = []

        def plain(event: Any) -> None:
            seen.append("plain")

        async def first(event: Any, say: Say) -> None:
            await say.insert(1)

        async def second(event: Any, say: Say) -> None:
            await say.insert(2)
            (row,) = here.world.rows()
            within.append((row["done_handlers"], row["locked_by"] is not None))
            if len(within) == 1:
                raise ValueError("no luck")

        outbox.handler("A", id="plain")(plain)
        here.handler(outbox, first, id="first")
        here.handler(outbox, second, id="second")
        async with outbox:
            await here.world.until_settled(1)
        assert here.effects() == [1, 2]
        assert seen == ["plain"]
        assert within == [('["plain","first"]', True)] * 2

    here.run(scenario)


def test_the_next_event_of_a_key_comes_after_the_commit(here: Place) -> None:
    async def scenario() -> None:
        outbox = here.outbox(ordered=True)
        seen: list[Any] = []

        async def handle(event: Any, say: Say) -> None:
            seen.append(here.effects())
            await say.insert(len(seen))

        here.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A", "A", "A", key="k")
            await here.world.until_settled(3)
        assert seen == [[], [1], [1, 2]]

    here.run(scenario)


def test_a_suspect_is_done_like_any_other(here: Place) -> None:
    async def scenario() -> None:
        outbox = here.outbox()
        await write(outbox, "A")
        here.world.change("UPDATE outbox_event SET locked_by = 'gone', lease_until = 1, lease_epoch = 1, abandoned = 1")

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)

        here.handler(outbox, handle)
        async with outbox:
            await here.world.until_settled(1)
        (row,) = here.world.rows()
        assert (row["abandoned"], row["locked_by"], here.effects()) == (0, None, [1])

    here.run(scenario)


def test_rows_that_are_not_kept_go_with_their_effects(place: Place) -> None:
    """Also the failures of earlier attempts."""

    async def scenario() -> None:
        outbox = place.outbox(delete_completed=True)

        async def handle(event: Any, say: Say) -> None:
            await say.insert(len(place.called))
            if len(place.called) == 1:
                raise ValueError("no luck")

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await place.world.until("SELECT count(*) = 0 FROM outbox_event")
        assert place.effects() == [2]
        assert place.world.rows("SELECT * FROM outbox_failure") == []

    place.run(scenario)


# ---------------------------------------------------------------- declaring


def test_metadata_comes_before_or_behind_the_transaction(world: World) -> None:
    async def scenario() -> None:
        outbox, seen = world.outbox(), []

        def one(event: OrderPlaced, meta: EventMetadata, tx) -> None:  # type: ignore[no-untyped-def]
            seen.append((event.order_id, meta.handler_id, type(tx).__name__))

        def other(event: OrderPlaced, tx, meta: EventMetadata) -> None:  # type: ignore[no-untyped-def]
            one(event, meta, tx)

        class Receipt(OutboxTypedHandler[OrderPlaced]):
            transactional = True

            def handle(self, event: OrderPlaced, tx: Any) -> Any:
                seen.append((event.order_id, "Receipt", type(tx).__name__))

        class AsyncReceipt(Receipt):
            id = "Receipt"

            async def handle(self, event: OrderPlaced, tx: Any) -> Any:
                super().handle(event, tx)

        for each in (one, other):
            outbox.handler(transactional=True, id=each.__name__)(coloured(world, each))
        outbox.handler(AsyncReceipt() if world.is_async else Receipt())
        await write(outbox, OrderPlaced(7))
        await outbox.drain()
        name = "AsyncHandlersTransaction" if world.is_async else "HandlersTransaction"
        assert seen == [(7, each, name) for each in ("one", "other", "Receipt")]

    world.run(scenario)


def coloured(world: World, function: Any) -> Any:
    if not world.is_async:
        return function

    async def handler(event: Any, second: Any, third: Any) -> None:
        function(event, second, third)

    handler.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return handler


def refused(outbox: Any, function: Any, match: str, error: type = EffectsUnsupported, **options: Any) -> None:
    with pytest.raises(error, match=match):
        outbox.handler("A", transactional=True, **options)(function)


def test_what_cannot_be_transactional_is_refused_when_it_is_declared(redis_url: str) -> None:
    outbox, async_outbox = Outbox("sqlite://"), AsyncOutbox("sqlite://")

    def takes_tx(event, tx): ...  # type: ignore[no-untyped-def]

    async def takes_tx_async(event, tx): ...  # type: ignore[no-untyped-def]

    def takes_session(event, tx: Session): ...  # type: ignore[no-untyped-def]

    def takes_nothing(event): ...  # type: ignore[no-untyped-def]

    def takes_text(event, tx: str): ...  # type: ignore[no-untyped-def]

    def takes_more(event, tx, more, most): ...  # type: ignore[no-untyped-def]

    refused(Outbox(redis_url), takes_tx, "commits no change of a handler's")
    refused(Outbox.writer_only("sqlite://"), takes_tx, "delivers nothing", InvalidOption)
    refused(outbox, takes_tx_async, "is async def, and its transaction is of a blocking outbox")
    refused(async_outbox, takes_tx, "is def, and its transaction is of a async outbox")
    refused(outbox, takes_session, "no engine to make one with")
    refused(outbox, takes_nothing, "takes no transaction")
    refused(outbox, takes_text, "takes a str as its tx")
    refused(outbox, takes_more, "takes 4 parameters", InvalidHandler)
    with pytest.raises(InvalidHandler, match="annotated Session") as caught:
        outbox.handler("A")(takes_session)
    assert "transactional=True" in caught.value.fix
    with pytest.raises(InvalidOption, match="transactional is 'yes'"):
        outbox.handler("A", transactional="yes")(takes_tx)
    handlers = HandlerSet()
    handlers.handler("A", transactional=True)(takes_tx)
    with pytest.raises(EffectsUnsupported):
        async_outbox.include(handlers)
    assert outbox.include(handlers)


# ---------------------------------------------------------------- nobody knows


@pytest.mark.parametrize("kind", ["own", "session"])
@pytest.mark.parametrize("way", [way for way in WAYS if way.startswith("postgres")])
@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_costs_no_attempt_and_is_done_once(
    way: str, kind: str, cut: str, postgres_url: str, tmp_path: Path, caplog: Any
) -> None:
    """Cut before the server hears the COMMIT, the event comes again; cut behind it, it is done."""
    with Proxy(postgres_url) as proxy:
        place = place_of(way, kind, tmp_path, proxy.url)
        place.world.somebody.clear()

        async def scenario() -> None:
            outbox = place.outbox()

            async def handle(event: Any, say: Say) -> None:
                if len(place.called) == 1:
                    proxy.cut_commit(cut, of=b"4711")
                await say.insert(4711)

            place.handler(outbox, handle)
            async with outbox:
                await write(outbox, "A")
                await place.world.until_settled(1)
                await until_true(outbox, lambda: not outbox._engine.held and not outbox._engine.settler.unsettled)
                count = counters(outbox)
            assert proxy.cuts == 1
            assert place.effects() == [4711]
            assert len(place.called) == (2 if cut == "before" else 1)
            assert [row["attempts"] for row in place.world.rows()] == [0]
            assert not count.keys() & {"lease_lost", "dispatch_failure"}
            assert "got no answer" in caplog.text

        place.run(scenario)
        place.world.somebody.close()


def test_a_database_that_is_away_when_a_handler_begins_costs_no_attempt(private_postgres: Any, tmp_path: Path) -> None:
    """Nobody was called."""
    place = place_of("postgres-threads", "own", tmp_path, private_postgres.url)

    class Cut:
        """The server ends between the claim and the call."""

        def before_dispatch(self, event: Any) -> None:
            if not place.called:
                place.world.somebody.close()
                private_postgres.stop(immediate=True)
                stopped.append(1)
                threading.Timer(0.2, private_postgres.start).start()
                place.called.add(None)

        def after_dispatch(self, event: Any, error: Any) -> None:
            errors.append(type(error).__name__)

    stopped: list[int] = []
    errors: list[str] = []

    async def scenario() -> None:
        outbox = place.outbox(interceptors=[Cut()])

        async def handle(event: Any, say: Say) -> None:
            await say.insert(1)

        place.handler(outbox, handle)
        async with outbox:
            await write(outbox, "A")
            await until_true(outbox, lambda: "NoneType" in errors)
            await until_counted(outbox, "dispatch_success", 1)
        assert errors[0] == "Unavailable"
        del place.world.__dict__["somebody"]  # whose connection has gone
        assert place.effects() == [1]
        assert [row["attempts"] for row in place.world.rows()] == [0]
        place.world.somebody.close()

    place.run(scenario)
