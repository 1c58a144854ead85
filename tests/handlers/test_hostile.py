"""What a program throws at its outbox: secrets, errors that cannot be printed, logging that raises. None of it gets
out, and none of it breaks a delivery."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aftercommit import Discard, Fixed, InvalidOption, Unavailable
from aftercommit.events.envelope import EventStatus
from tests.delivery.faulty import short_pauses  # noqa: F401  (used by every test here)
from tests.handlers.kit import Colouring, declare, drain_all, write
from tests.support import Collector, World

ADDRESS = "postgresql://shop:geheim@db.example/orders"
MASKED = "postgresql://shop:***@db.example/orders"


def raiser(error: BaseException) -> Any:
    def handler(event: Any) -> None:
        raise error

    return handler


# ------------------------------------------------------------ secrets


@pytest.mark.parametrize("is_declared", [False, True], ids=["named by the error", "declared"])
def test_the_password_of_a_destination_is_neither_logged_nor_shown(
    world: World, caplog: pytest.LogCaptureFixture, is_declared: bool
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        outbox, is_away = world.outbox(), [True]

        def handler(event: Any) -> None:
            if is_away[0]:
                raise Unavailable(ADDRESS, "0s")

        outbox.handler("A", id="h", **({"destination": lambda event: ADDRESS} if is_declared else {}))(handler)
        await write(outbox, "A")
        await outbox.poll()
        assert (await outbox.stats()).unavailable == (MASKED,)
        is_away[0] = False
        await drain_all(world, outbox)
        assert (await outbox.stats()).unavailable == ()

    world.run(scenario)
    for line in (f"{MASKED} is away", f"waits for {MASKED}", f"{MASKED} is back"):
        assert line in caplog.text
    assert "geheim" not in caplog.text


def test_destinations_that_differ_in_their_password_alone_are_two(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox()
        for number in (1, 2):
            away = Unavailable(f"https://shop:{number}@host", "1h")
            outbox.handler(f"{number}", id=f"h{number}")(raiser(away))
        await write(outbox, "1", "2")
        await outbox.drain()
        assert (await outbox.stats()).unavailable == ("https://shop:***@host",) * 2

    world.run(scenario)


def test_the_reason_of_a_discard_is_logged_without_its_secrets(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        outbox = world.outbox()
        outbox.register("A", raiser(Discard(f"{ADDRESS} refuses token=geheim")))
        await write(outbox, "A")
        await outbox.drain()
        assert world.statuses() == [EventStatus.DONE]

    world.run(scenario)
    assert f"{MASKED} refuses token=***" in caplog.text
    assert "geheim" not in caplog.text


# ------------------------------------------------------------ what cannot be printed


class Unprintable(Exception):
    """Its text raises what ends a program."""

    def __init__(self, error: type[BaseException]) -> None:
        self._error = error

    def __str__(self) -> str:
        raise self._error("from a text")

    __repr__ = __str__


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_an_error_whose_text_ends_programs_is_a_failed_attempt(
    world: World, colour: Colouring, kind: type[BaseException]
) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_attempts=2, worker_count=1, retry_policy=Fixed("1ms"))
        declare(outbox, colour, raiser(Unprintable(kind)))
        declare(outbox, colour, seen.add, "B", id="other")
        async with outbox:
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.DEAD)
            await write(outbox, "B")  # the worker is still there
            await seen.reach(1)
        row = world.rows()[0]
        assert (row["attempts"], row["last_error"]) == (2, "Unprintable: (its message cannot be printed)")

    world.run(scenario)


def test_a_retry_policy_that_asks_for_such_a_text_breaks_nothing(world: World) -> None:
    async def scenario() -> None:
        outbox = world.outbox(worker_count=1, max_attempts=2)
        policy = Fixed("1ms", retry_on=lambda error: "timeout" in str(error))
        outbox.handler("A", id="h", retry=policy)(raiser(Unprintable(SystemExit)))
        async with outbox:
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.DEAD)
        assert world.rows()[0]["attempts"] == 2

    world.run(scenario)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_reason_whose_text_ends_programs_is_as_good_as_any(
    world: World, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        outbox = world.outbox(worker_count=1)
        outbox.register("A", raiser(Discard(Unprintable(kind))))  # type: ignore[arg-type]
        async with outbox:
            await write(outbox, "A", "A")
            await world.until_settled(2)

    world.run(scenario)


# ------------------------------------------------------------ logging that raises


class Broken(logging.Handler):
    """As a program's logging may be: each record of ours raises, where logging itself lets it through."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error
        self.records = Collector()

    def handle(self, record: logging.LogRecord) -> bool:
        self.records.add(record)
        raise self._error


@contextmanager
def broken_logging(error: BaseException) -> Iterator[Broken]:
    ours, broken = logging.getLogger("aftercommit"), Broken(error)
    level, handlers = ours.level, ours.handlers[:]
    ours.addHandler(broken)
    ours.setLevel(logging.DEBUG)
    try:
        yield broken
    finally:
        ours.setLevel(level)
        ours.handlers[:] = handlers


@pytest.mark.parametrize("error", [RuntimeError("no disk"), SystemExit("no disk")], ids=["an error", "an exit"])
def test_logging_that_raises_breaks_no_delivery(world: World, colour: Colouring, error: BaseException) -> None:
    async def scenario() -> None:
        failed, discarded = Collector(), Collector()
        outbox = world.outbox(max_attempts=2, worker_count=1, retry_policy=Fixed("1ms"))

        def failing(event: Any) -> None:
            failed.add(event)
            raise ValueError("deliberate")

        def discarding(event: Any) -> None:
            discarded.add(event)
            raise Discard("not wanted")

        declare(outbox, colour, failing)
        declare(outbox, colour, discarding, "B", id="other")
        async with outbox:
            await write(outbox, "A", "B")
            await world.until_settled(1, EventStatus.DEAD)
            await world.until_settled(1)
        assert (len(failed), len(discarded)) == (2, 1)
        assert [row["attempts"] for row in world.rows()] == [2, 0]

    with broken_logging(error) as broken:
        world.run(scenario)
    assert {record.name for record in broken.records} >= {"aftercommit.delivery", "aftercommit.settler"}
    assert {record.filename for record in broken.records} >= {"chain.py", "settler.py"}, "who said it"


def test_logging_that_raises_is_said_where_logging_says_its_own_failures(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario() -> None:
        outbox = world.outbox(max_attempts=1)
        outbox.register("A", raiser(ValueError("deliberate")))
        await write(outbox, "A")
        await outbox.drain()
        assert world.statuses() == [EventStatus.DEAD]

    with broken_logging(RuntimeError("no disk, password=geheim")):
        world.run(scenario)
    said = capsys.readouterr().err
    assert "RuntimeError: no disk, password=***" in said
    assert "aftercommit.delivery" in said


# ------------------------------------------------------------ what a handler may not say


class Nameless(Unavailable):
    """A subclass that keeps nothing of what it is."""

    def __init__(self) -> None:
        Exception.__init__(self, "away")


def renamed() -> Unavailable:
    error = Unavailable("shop")
    error.destination = ["shop"]  # type: ignore[assignment]
    return error


@pytest.mark.parametrize("make", [lambda: Unavailable(["shop"]), lambda: Unavailable(7), Nameless, renamed])  # type: ignore[arg-type]
def test_a_destination_that_is_no_text_is_a_mistake_of_the_handler(world: World, make: Any) -> None:
    async def scenario() -> None:
        calls, outbox = Collector(), world.outbox(max_attempts=2, retry_policy=Fixed("1ms"))

        def handler(event: Any) -> None:
            calls.add(event)
            raise make()

        outbox.register("A", handler)
        async with outbox:
            await write(outbox, "A")
            await world.until_settled(1, EventStatus.DEAD)
        assert len(calls) == 2
        assert (await outbox.stats()).unavailable == ()

    world.run(scenario)
    assert world.rows()[0]["attempts"] == 2


def test_a_destination_that_is_no_text_is_refused_where_it_is_given() -> None:
    with pytest.raises(InvalidOption, match="destination of Unavailable is a list") as refused:
        Unavailable(["postgresql://u:geheim@h/db"])  # type: ignore[arg-type]
    assert "geheim" not in str(refused.value)
