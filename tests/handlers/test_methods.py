"""Methods as handlers: declared in the body of a class, bound when an instance is included."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pytest

from aftercommit import DuplicateHandler, EventMetadata, FailureContext, HandlerSet, InvalidHandler, NoRetry, Outbox
from aftercommit.events.envelope import EventStatus
from tests.handlers.kit import Deliberate, OrderPlaced, OrderShipped, write
from tests.support import Collector, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


handlers = HandlerSet()


class Desk:
    def __init__(self, seen: Collector) -> None:
        self.seen = seen

    @handlers.handler
    def placed(self, event: OrderPlaced, meta: EventMetadata) -> None:
        self.seen.add(("placed", event, meta.handler_id))

    @handlers.handler(id="shipped-later")
    async def shipped(self, event: OrderShipped) -> None:
        self.seen.add(("shipped", event))

    @handlers.handler("static")
    @staticmethod
    def of_nobody(event: Any) -> None:
        event.seen = True

    @handlers.handler("class")
    @classmethod
    def of_all(cls, event: Any) -> None:
        Desk.last = cls  # type: ignore[attr-defined]

    @staticmethod
    @handlers.handler("outer static")
    def also_of_nobody(event: Any) -> None: ...

    @classmethod
    @handlers.handler("outer class")
    def also_of_all(cls, event: Any) -> None:
        cls.last = cls  # type: ignore[attr-defined]

    @handlers.handler("failing", retry=NoRetry())
    def failing(self, event: Any) -> None:
        raise Deliberate("no")

    @failing.fallback
    def failed(self, event: Any, failure: FailureContext) -> None:
        self.seen.add(("failed", failure.handler_id, str(failure.last_error)))


def test_methods_are_bound_when_their_instance_is_included(world: World) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Desk(seen))
        await write(outbox, OrderPlaced(1), OrderShipped(2), "failing", "class", "outer class", "outer static")
        await outbox.drain()
        assert seen == [
            ("placed", OrderPlaced(1), "placed"),
            ("shipped", OrderShipped(2)),
            ("failed", "failing", "no"),
        ]
        assert Desk.last is Desk  # type: ignore[attr-defined]
        assert world.statuses() == [EventStatus.DONE] * 6

    world.run(scenario)


def test_a_declared_method_is_still_a_method() -> None:
    seen = Collector()
    desk = Desk(seen)
    desk.failed("event", FailureContext("e", "h", None, None, 1, Deliberate(), True, {}))  # type: ignore[arg-type]
    with pytest.raises(Deliberate):
        desk.failing("event")
    assert Desk.placed.id == "placed"
    assert Desk.also_of_nobody("event") is None


def test_the_same_instance_twice_is_fine_and_two_of_a_class_are_not() -> None:
    outbox, desk = Outbox("sqlite://"), Desk(Collector())
    outbox.include(desk).include(desk)
    with pytest.raises(DuplicateHandler, match="placed"):
        outbox.include(Desk(Collector()))


class Base(ABC):
    @handlers.handler("A", id="inherited")
    @abstractmethod
    def on_a(self, event: Any) -> None: ...


class Middle(Base): ...


class Concrete(Middle):
    def __init__(self, seen: Collector) -> None:
        self.seen = seen

    def on_a(self, event: Any) -> None:
        self.seen.add(event.event_type)


def test_a_subclass_writes_the_body_of_a_declared_method(world: World) -> None:
    """TC-413: called once, under the id of the declaration."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.include(Concrete(seen))
        await write(outbox, "A")
        await outbox.drain()
        assert seen == ["A"]

    world.run(scenario)


class Typed(ABC):
    @handlers.handler
    @abstractmethod
    def on_order(self, event: OrderPlaced) -> None: ...


class Untyped(Typed):
    def on_order(self, event): ...  # type: ignore[no-untyped-def]


def test_a_body_without_annotation_has_that_of_the_declaration() -> None:
    outbox = Outbox("sqlite://").include(Untyped())
    assert outbox._roster.handlers["on_order"].payload is OrderPlaced


def test_an_object_in_a_class_that_is_merely_called_is_a_handler_too(world: World) -> None:
    async def scenario() -> None:
        seen, own, outbox = Collector(), HandlerSet(), world.outbox()

        class Called:
            def __call__(self, event: Any) -> None:
                seen.add(event.event_type)

        class Holder:
            called = own.handler("A", id="called")(Called())

        outbox.include(Holder())
        await write(outbox, "A")
        await outbox.drain()
        assert seen == ["A"]

    world.run(scenario)


@pytest.mark.parametrize(("wrong", "fix"), [(Desk, "Desk("), (object(), "HandlerSet"), (7, "HandlerSet")])
def test_what_has_no_handlers_is_refused(wrong: Any, fix: str) -> None:
    with pytest.raises(InvalidHandler) as caught:
        HandlerSet().include(wrong)
    assert fix in caught.value.fix


def test_a_wrong_method_is_refused_when_it_is_included_and_nothing_of_its_class_is_taken() -> None:
    own = HandlerSet()

    class Wrong:
        @own.handler("A")
        def right(self, event: Any) -> None: ...

        @own.handler
        def wrong(self, event) -> None: ...  # type: ignore[no-untyped-def]

    outbox = Outbox("sqlite://")
    with pytest.raises(InvalidHandler, match=r"wrong .* has no annotation"):
        outbox.include(Wrong())
    assert not outbox._roster.handlers


def test_a_class_whose_instance_was_forgotten_is_reported_at_start(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        outbox, own = world.outbox(), HandlerSet()
        outbox.include(own)

        class Forgotten:
            @own.handler("A")
            def on_a(self, event: Any) -> None: ...

        with caplog.at_level(logging.WARNING):
            await outbox.start()
        assert "the handler on_a is declared in a class and gets no events" in caplog.text
        caplog.clear()
        await outbox.close()
        outbox.include(Forgotten())
        await outbox.start()
        assert "on_a" not in caplog.text

    world.run(scenario)


def test_a_method_may_take_a_class_of_the_function_around() -> None:
    own = HandlerSet()

    @dataclass
    class Local:
        order_id: int

    class Mailer:
        @own.handler
        def on_local(self, event: Local) -> None: ...

    outbox = Outbox("sqlite://").include(Mailer())
    assert outbox._roster.handlers["on_local"].payload is Local
