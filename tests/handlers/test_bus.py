"""The in-process bus: marked objects are written, all are passed on, in the publisher's own thread or task."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import pytest

from aftercommit import ColourMismatch, InvalidListener, NotInTransaction
from aftercommit.errors import InvalidPayloadType
from aftercommit.events.classes import outbox_event
from aftercommit.events.ids import EventId, EventIds
from aftercommit.handlers.bus import Bus
from aftercommit.ports import Colour
from aftercommit.runtime.threads import run


@dataclasses.dataclass
class Noted:
    text: str


@outbox_event
@dataclasses.dataclass
class Placed:
    number: int


class Heir(Placed):
    pass


class Publisher:
    """A bus of one colour with an outbox that notes what it was given."""

    def __init__(self, colour: Colour, **options: Any) -> None:
        self.colour = colour
        self.bus = Bus(colour, **options)
        self.seen: list[Any] = []
        self.fails = False

    async def _write(self) -> str:
        if self.fails:
            raise NotInTransaction("no transaction")
        self.seen.append("written")
        return "id-1"

    def publish(self, value: object) -> Any:
        work = self.bus.publish(value, self._write)
        return run(work) if self.colour is Colour.BLOCKING else asyncio.run(work)

    def subscriber(self, name: str) -> Callable[[Any], None]:
        return lambda value: self.seen.append((name, value))


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def publisher(request: pytest.FixtureRequest) -> Publisher:
    return Publisher(request.param)


def test_an_unmarked_object_goes_to_subscribers_only(publisher: Publisher) -> None:
    """TC-430."""
    publisher.bus.subscribe(Noted, publisher.subscriber("one"))
    publisher.bus.subscribe(Placed, publisher.subscriber("other"))
    assert publisher.publish(Noted("x")) is None
    assert publisher.seen == [("one", Noted("x"))]
    for value in ("text", 7, None):
        assert publisher.publish(value) is None
    assert len(publisher.seen) == 1


def test_a_marked_object_is_written_first_and_then_passed_on(publisher: Publisher) -> None:
    """TC-431."""
    publisher.bus.subscribe(Placed, publisher.subscriber("one"))
    assert publisher.publish(Placed(7)) == "id-1"
    assert publisher.seen == ["written", ("one", Placed(7))]


def test_a_subclass_of_a_marked_class_is_written_and_reaches_subscribers_of_its_base(publisher: Publisher) -> None:
    publisher.bus.subscribe(Heir, publisher.subscriber("heir"))
    publisher.bus.subscribe(Placed, publisher.subscriber("base"))
    publisher.bus.subscribe(object, publisher.subscriber("all"))
    publisher.publish(Heir(7))
    publisher.publish(Placed(8))
    assert publisher.seen == [
        "written",
        *(("heir", Heir(7)), ("base", Heir(7)), ("all", Heir(7))),
        "written",
        *(("base", Placed(8)), ("all", Placed(8))),
    ]


@pytest.mark.parametrize("returned", [EventId("7"), EventIds(["7"])], ids=["one", "many"])
def test_a_subscriber_may_return_the_ids_of_what_it_wrote(publisher: Publisher, returned: Any) -> None:
    publisher.bus.subscribe(Noted, lambda value: returned)
    publisher.bus.subscribe(Noted, publisher.subscriber("after it"))
    publisher.publish(Noted("x"))
    assert publisher.seen == [("after it", Noted("x"))]


def test_without_a_transaction_nothing_is_passed_on(publisher: Publisher) -> None:
    """TC-432."""
    publisher.fails = True
    publisher.bus.subscribe(object, publisher.subscriber("all"))
    with pytest.raises(NotInTransaction):
        publisher.publish(Placed(7))
    assert publisher.seen == []
    publisher.publish(Noted("needs none"))
    assert publisher.seen == [("all", Noted("needs none"))]


@pytest.mark.parametrize("colour", list(Colour))
def test_without_publish_after_save_marked_objects_are_only_written(colour: Colour) -> None:
    """TC-433."""
    publisher = Publisher(colour, publish_after_save=False)
    publisher.bus.subscribe(object, publisher.subscriber("all"))
    publisher.publish(Placed(7))
    publisher.publish(Noted("x"))
    assert publisher.seen == ["written", ("all", Noted("x"))]


@pytest.mark.parametrize("publish_after_save", [True, False])
@pytest.mark.parametrize("colour", list(Colour))
def test_disabled_marked_objects_are_like_all_others(colour: Colour, publish_after_save: bool) -> None:
    publisher = Publisher(colour, enabled=False, publish_after_save=publish_after_save)
    publisher.bus.subscribe(object, publisher.subscriber("all"))
    assert publisher.publish(Placed(7)) is None
    assert publisher.seen == [("all", Placed(7))]
    assert not publisher.bus.writes(Placed(7))


def test_what_a_subscriber_raises_reaches_the_publisher(publisher: Publisher) -> None:
    """It is part of the publisher's transaction, which then rolls back."""
    publisher.bus.subscribe(Placed, publisher.subscriber("before"))
    publisher.bus.subscribe(Placed, lambda _: 1 // 0)
    publisher.bus.subscribe(Placed, publisher.subscriber("after"))
    with pytest.raises(ZeroDivisionError):
        publisher.publish(Placed(7))
    assert publisher.seen == ["written", ("before", Placed(7))]


variable: ContextVar[str] = ContextVar("variable", default="")


def test_subscribers_run_in_the_publishers_own_thread_and_context(publisher: Publisher) -> None:
    publisher.bus.subscribe(Noted, lambda _: variable.set("from a subscriber"))
    publisher.bus.subscribe(Noted, lambda _: publisher.seen.append((threading.get_ident(), variable.get())))
    publisher.publish(Noted("x"))
    assert publisher.seen == [(threading.get_ident(), "from a subscriber")]


def test_subscribe_is_a_decorator_too_and_gives_the_function_back(publisher: Publisher) -> None:
    @publisher.bus.subscribe(Noted)
    def subscriber(note: Noted) -> None:
        publisher.seen.append(note)

    assert publisher.bus.subscribe(Placed, subscriber) is subscriber
    publisher.publish(Noted("x"))
    assert publisher.seen == [Noted("x")]


def test_a_subscriber_that_is_added_meanwhile_waits_for_the_next_object(publisher: Publisher) -> None:
    publisher.bus.subscribe(Noted, lambda _: publisher.bus.subscribe(Noted, publisher.subscriber("new")))
    publisher.publish(Noted("first"))
    assert publisher.seen == []


def test_async_subscribers_are_awaited_one_after_another() -> None:
    publisher = Publisher(Colour.ASYNC)

    class Callable:
        async def __call__(self, value: Noted) -> None:
            await asyncio.sleep(0)
            publisher.seen.append("object")

    async def plain(value: Noted) -> None:
        await asyncio.sleep(0)
        publisher.seen.append(asyncio.current_task() is task)

    async def forgetful(value: Noted) -> Any:
        return plain(value)

    publisher.bus.subscribe(Noted, plain)
    publisher.bus.subscribe(Noted, partial(plain))
    publisher.bus.subscribe(Noted, forgetful)
    publisher.bus.subscribe(Noted, Callable())

    async def main() -> None:
        nonlocal task
        task = asyncio.current_task()
        await publisher.bus.publish(Noted("x"), publisher._write)

    task: Any = None
    asyncio.run(main())
    assert publisher.seen == [True, True, True, "object"]


# ---------------------------------------------------------------- bad input


async def later(value: Any) -> None: ...


class Later:
    async def __call__(self, value: Any) -> None: ...


def test_threads_cannot_await_a_subscriber() -> None:
    publisher = Publisher(Colour.BLOCKING)
    for subscriber in (later, Later(), partial(later)):
        with pytest.raises(ColourMismatch, match=r"(?s)the subscriber .* is async.*Fix: write it as plain def"):
            publisher.bus.subscribe(Noted, subscriber)
    publisher.bus.subscribe(Noted, lambda value: [later(value)][0])
    with pytest.raises(InvalidListener, match=r"(?s)<lambda> returned a coroutine, so its body has not run"):
        publisher.publish(Noted("x"))


def test_a_subscriber_that_returns_a_generator_has_not_run(publisher: Publisher) -> None:
    publisher.bus.subscribe(Noted, lambda value: (each for each in [value]))
    with pytest.raises(InvalidListener, match=r"(?s)<lambda> returned a generator, so its body has not run"):
        publisher.publish(Noted("x"))


def generator(value: Any) -> Any:
    yield value


@pytest.mark.parametrize("subscriber", [7, "name", generator])
def test_what_cannot_run_is_refused_as_a_subscriber(publisher: Publisher, subscriber: Any) -> None:
    with pytest.raises(InvalidListener):
        publisher.bus.subscribe(Noted, subscriber)


def test_a_class_is_subscribed_to_and_an_object_published(publisher: Publisher) -> None:
    for kind in ("Noted", Noted("x"), Noted | Placed):
        with pytest.raises(InvalidPayloadType, match=r"subscribe\(\) got .* which is no class"):
            publisher.bus.subscribe(kind, print)  # type: ignore[call-overload]
    with pytest.raises(
        InvalidPayloadType, match=r"(?s)publish\(\) got the class Placed instead of an object.*Placed\(…\)"
    ):
        publisher.publish(Placed)
