"""Registries: who receives an event, and what can never be a listener."""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from enum import Enum, StrEnum
from typing import Any
from unittest.mock import Mock

import pytest

from aftercommit import (
    AggregateType,
    DefaultListenerRegistry,
    DuplicateListener,
    EventEnvelope,
    EventListener,
    EventType,
    InvalidListener,
    InvalidName,
    ListenerRegistry,
    MultiListenerRegistry,
)
from aftercommit.handlers.listeners import called
from tests.support import Collector, World


@pytest.fixture
def world(every_world: World) -> World:
    """What is said here holds on every store."""
    return every_world


class Kind(Enum):
    CREATED = 1


class Word(StrEnum):
    CREATED = "user.created"


def listener(event: EventEnvelope) -> None: ...


def other(event: EventEnvelope) -> None: ...


# ---------------------------------------------------------------- one listener for a route


def test_an_unknown_route_has_no_listener() -> None:
    """TC-219"""
    assert DefaultListenerRegistry().listener_for("User", "Created") is None


def test_a_route_without_aggregate_is_global() -> None:
    """TC-220"""
    registry = DefaultListenerRegistry().register("Created", listener)
    assert registry.listener_for("__GLOBAL__", "Created") is listener
    assert registry.listener_for("User", "Created") is None


def test_a_second_listener_for_a_route_is_refused_and_both_are_named() -> None:
    """TC-221, F72"""
    registry = DefaultListenerRegistry().register("User", "Created", listener)
    with pytest.raises(DuplicateListener, match=r"User/Created has the listener listener already; other") as caught:
        registry.register("User", "Created", other)
    assert "MultiListenerRegistry" in caught.value.fix
    assert registry.listener_for("User", "Created") is listener


def test_the_same_listener_twice_is_a_second_one_too() -> None:
    registry = DefaultListenerRegistry().register("Created", listener)
    with pytest.raises(DuplicateListener):
        registry.register("__GLOBAL__", "Created", listener)


def test_aggregates_have_listeners_of_their_own() -> None:
    """TC-222"""
    registry = DefaultListenerRegistry().register("Order", "Created", listener).register("User", "Created", other)
    assert registry.listener_for("Order", "Created") is listener
    assert registry.listener_for("User", "Created") is other
    assert len(registry) == 2


@pytest.mark.parametrize(
    ("event_type", "name"),
    [("Created", "Created"), (Kind.CREATED, "CREATED"), (Word.CREATED, "user.created"), (EventType("Typed"), "Typed")],
)
@pytest.mark.parametrize(
    ("aggregate_type", "aggregate"), [("User", "User"), (Kind.CREATED, "CREATED"), (AggregateType("Typed"), "Typed")]
)
def test_every_way_to_say_a_name_is_the_same_route(
    event_type: Any, name: str, aggregate_type: Any, aggregate: str
) -> None:
    """TC-223"""
    registry = DefaultListenerRegistry().register(aggregate_type, event_type, listener)
    assert registry.listener_for(aggregate, name) is listener


def test_names_with_a_separator_do_not_collide() -> None:
    """TC-224"""
    registry = DefaultListenerRegistry().register("a:b", "c", listener).register("a", "b:c", other)
    assert registry.listener_for("a:b", "c") is listener
    assert registry.listener_for("a", "b:c") is other


@pytest.mark.parametrize(
    "route", [(None, "Created", listener), ("User", None, listener), (None, listener), (7, listener)]
)
def test_a_name_that_is_none_is_refused(route: tuple[Any, ...]) -> None:
    """TC-225"""
    with pytest.raises(InvalidName):
        DefaultListenerRegistry().register(*route)


@pytest.mark.parametrize("route", [(), ("Created",), ("a", "b", "c", listener)])
def test_too_few_and_too_many_arguments_are_refused(route: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match=r"event_type, listener"):
        DefaultListenerRegistry().register(*route)


# ---------------------------------------------------------------- what can be a listener


def generator(event: EventEnvelope) -> Iterator[None]:
    yield


async def async_generator(event: EventEnvelope) -> AsyncIterator[None]:
    yield


class Generating:
    def __call__(self, event: EventEnvelope) -> Iterator[None]:
        yield

    def method(self, event: EventEnvelope) -> Iterator[None]:
        yield


REGISTER: list[Callable[[Any], Any]] = [
    lambda it: DefaultListenerRegistry().register("Created", it),
    lambda it: MultiListenerRegistry().register("Created", it),
    lambda it: MultiListenerRegistry().register_all(it),
]


@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize(
    "never",
    [generator, async_generator, Generating(), Generating().method, functools.partial(generator)],
    ids=["generator", "async generator", "object", "method", "partial"],
)
def test_a_generator_function_is_refused_when_registered(register: Callable[[Any], Any], never: Any) -> None:
    """Calling it would run nothing of its body, and the event would be DONE. F59, F60"""
    with pytest.raises(InvalidListener, match="would run nothing of its body") as caught:
        register(never)
    assert "return instead of yield" in caught.value.fix


@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize("never", [None, 3, "listener"])
def test_what_cannot_be_called_is_refused(register: Callable[[Any], Any], never: Any) -> None:
    """TC-225"""
    with pytest.raises(InvalidListener, match="cannot be called"):
        register(never)


# ---------------------------------------------------------------- listeners that are objects


class Heard(EventListener):
    """Of either colour: what `colour` makes of a function."""

    def __init__(self, seen: Collector, colour: Callable[..., Any]) -> None:
        self.seen = seen
        self._hear = colour(self._add)

    def _add(self, event: EventEnvelope) -> None:
        self.seen.add((event.event_type, event.payload_json))
        if event.payload_json == '"fail"':
            raise ValueError("deliberate")

    def on_event(self, event: EventEnvelope) -> object:
        return self._hear(event)


class Structural:
    """Has the method, and derives from nothing."""

    def __init__(self, seen: Collector) -> None:
        self.seen = seen

    async def on_event(self, event: EventEnvelope) -> None:
        self.seen.add((event.event_type, event.payload_json))

    def __call__(self, event: EventEnvelope) -> None:
        raise AssertionError("on_event goes first")


def test_an_object_hears_events_like_a_function(world: World, colour: Callable[..., Any]) -> None:
    """H4: DONE when on_event returns, counted when it raises; by aggregate type, and beside functions."""

    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox(max_attempts=1)
        outbox.register("Created", Heard(seen, colour))
        outbox.register("User", "Created", Structural(seen))
        outbox.register("Plain", colour(lambda event: seen.add((event.event_type, event.payload_json))))
        async with outbox.transaction():
            await outbox.write("Created", "1")
            await outbox.write("Created", "2", aggregate_type="User")
            await outbox.write("Plain", "3")
            await outbox.write("Created", '"fail"')
        await outbox.drain()
        assert seen == [("Created", "1"), ("Created", "2"), ("Plain", "3"), ("Created", '"fail"')]
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(1, 0), (1, 0), (1, 0), (3, 1)]
        assert "deliberate" in world.rows()[-1]["last_error"]

    world.run(scenario)


def test_an_object_hears_events_after_their_commit(world: World, colour: Callable[..., Any]) -> None:
    async def scenario() -> None:
        seen, outbox = Collector(), world.outbox()
        outbox.register("Created", Heard(seen, colour))
        await outbox.start()
        async with outbox.transaction():
            await outbox.write("Created", "1")
        await seen.reach(1)
        await world.until_settled(1)

    world.run(scenario)


def test_an_object_may_be_one_of_several_and_come_from_a_registry_of_ones_own(
    world: World, colour: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        seen = Collector()

        class Own:
            def listener_for(self, aggregate_type: str, event_type: str) -> Any:
                return [Heard(seen, colour), Structural(seen)] if event_type == "Both" else Structural(seen)

        several = MultiListenerRegistry().register("Both", Heard(seen, colour)).register_all(Structural(seen))
        for table, registry in (("one_event", several), ("two_event", Own())):
            outbox = world.outbox(listener_registry=registry, table=table)
            async with outbox.transaction():
                await outbox.write("Both", "1")
                await outbox.write("Other", "2")
            await outbox.drain()
        assert seen == [("Both", "1"), ("Both", "1"), ("Other", "2")] * 2

    world.run(scenario)


def test_a_registry_gives_back_the_object_that_it_got() -> None:
    listener = Structural(Collector())
    assert DefaultListenerRegistry().register("Created", listener).listener_for("__GLOBAL__", "Created") is listener
    assert isinstance(listener, EventListener)


def test_a_mock_stands_for_a_function_unless_it_stands_for_a_listener() -> None:
    function, listener = Mock(), Mock(spec=EventListener)
    assert called(function) is function
    assert called(listener) is listener.on_event


class Yielding:
    def on_event(self, event: EventEnvelope) -> Iterator[None]:
        yield


class Without:
    on_event = None


@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize(
    ("wrong", "said", "fix"),
    [
        (Structural, "Structural is a class", r"register Structural\(…\)"),
        (Yielding(), "is a generator", "return instead of yield"),
        (Without(), "cannot be called", "function"),
    ],
)
def test_an_object_that_would_hear_nothing_is_refused(
    register: Callable[[Any], Any], wrong: Any, said: str, fix: str
) -> None:
    with pytest.raises(InvalidListener, match=said) as caught:
        register(wrong)
    assert re.search(fix, caught.value.fix)


def test_a_listener_without_its_method_cannot_be_made() -> None:
    class Misspelt(EventListener):
        def on_evnet(self, event: EventEnvelope) -> None: ...

    with pytest.raises(TypeError, match="on_event"):
        Misspelt()  # type: ignore[abstract]


# ---------------------------------------------------------------- several listeners


def test_several_listeners_come_in_order_then_those_for_all_events() -> None:
    """C6"""
    every, third = (lambda event: None), (lambda event: None)
    registry = MultiListenerRegistry().register_all(every).register("Created", listener).register(Kind.CREATED, third)
    registry.register("Created", other)
    assert registry.listener_for("User", "Created") == (listener, other, every)
    assert registry.listener_for("__GLOBAL__", "CREATED") == (third, every)
    assert registry.listener_for("User", "Deleted") == (every,)
    assert len(registry) == 3


def test_without_any_listener_there_is_none() -> None:
    assert MultiListenerRegistry().register("Created", listener).listener_for("User", "Deleted") is None
    assert len(MultiListenerRegistry()) == 0


def test_both_are_listener_registries() -> None:
    assert isinstance(DefaultListenerRegistry(), ListenerRegistry)
    assert isinstance(MultiListenerRegistry(), ListenerRegistry)


def test_several_listeners_share_one_row(world: World, colour: Callable[..., Any]) -> None:
    """All run in order; when one fails the attempt fails, and all run again."""

    async def scenario() -> None:
        seen = Collector()

        def second(event: EventEnvelope) -> None:
            seen.add("second")
            if seen.count("second") == 1:
                raise ValueError("not yet")

        registry = MultiListenerRegistry().register_all(colour(lambda event: seen.add("all")))
        outbox = world.outbox(listener_registry=registry)
        outbox.register("Created", colour(lambda event: seen.add("first")))
        outbox.register("Created", colour(second))
        async with outbox.transaction():
            await outbox.write("Created", {}, aggregate_type="User")
        assert await outbox.poll() == 1
        assert [(row["status"], row["attempts"]) for row in world.rows()] == [(2, 1)]
        world.change("UPDATE outbox_event SET available_at = 0")
        assert await outbox.poll() == 1
        assert seen == ["first", "second", "first", "second", "all"]
        assert world.statuses() == [1]

    world.run(scenario)
