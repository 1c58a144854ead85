"""Spans of OpenTelemetry over the commit: every delivery leads back to the write, whichever way it came."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from aftercommit import (
    DeadLetter,
    Discard,
    EventEnvelope,
    Fixed,
    MissingDriver,
    OtelTracing,
    Outbox,
    Tracing,
    WriterHook,
)
from tests.delivery.faulty import until
from tests.support import PATIENCE, Collector, World

Colouring = Callable[[Callable[..., Any]], Callable[..., Any]]

PASSWORD = "canary-4711"


class Spans:
    """A provider of the test's own, and what has ended in it."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def tracing(self, **options: Any) -> OtelTracing:
        return OtelTracing(self.provider, **options)

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all)


@pytest.fixture
def spans() -> Spans:
    return Spans()


def linked(span: ReadableSpan) -> list[Any]:
    return [link.context.span_id for link in span.links]


def id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


@pytest.mark.parametrize("hot_path", [True, False], ids=["hot", "cold"])
def test_a_delivery_is_linked_with_its_write_and_its_settle_is_below_it(
    world: World, colour: Colouring, spans: Spans, hot_path: bool
) -> None:
    """The span of the delivery is current in the handler, and what it writes is below it in turn."""

    async def scenario() -> None:
        current = Collector()
        outbox = world.outbox(tracing=spans.tracing(), hot_path=hot_path)

        def handle(event: EventEnvelope) -> None:
            current.add(trace.get_current_span().get_span_context().span_id)

        outbox.handler("Placed", id="receipt")(colour(handle))
        async with outbox:
            with spans.provider.get_tracer("test").start_as_current_span("request") as request:
                async with outbox.transaction():
                    event_id = await outbox.write("Placed", "{}", key="order-7")
            await current.reach(1)
            await until(lambda: spans.named("ack Placed"))
        (write,), (process,), (ack,) = map(spans.named, ("write Placed", "process Placed", "ack Placed"))
        assert (write.kind, process.kind, ack.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CLIENT)
        assert write.parent.span_id == request.get_span_context().span_id
        assert process.parent is None, "it is a trace of its own"
        assert linked(process) == [id_of(write)]
        assert current == [id_of(process)]
        assert ack.parent.span_id == id_of(process)
        source = "hot" if hot_path else "cold"
        assert dict(write.attributes) == {
            "messaging.system": "outbox",
            "messaging.operation.type": "create",
            "messaging.operation.name": "write",
            "messaging.destination.name": "Placed",
            "messaging.message.id": event_id,
            "messaging.destination.partition.id": str(world.rows()[0]["partition_no"]),
        }
        told = dict(process.attributes)
        assert told.pop("messaging.client.id")
        assert told == {
            "messaging.system": "outbox",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": "Placed",
            "messaging.message.id": event_id,
            "messaging.consumer.group.name": "receipt",
            "outbox.attempt": 1,
            "outbox.source": source,
        }
        assert ack.attributes["messaging.operation.type"] == "settle"

    world.run(scenario)


def test_every_attempt_is_linked_with_the_write_and_tells_its_error_without_secrets(
    world: World, colour: Colouring, spans: Spans
) -> None:
    """Over a retry, a replay and another outbox; the envelope is the same each time."""

    async def scenario() -> None:
        seen = Collector()
        writer = world.outbox(tracing=spans.tracing())
        outbox = world.outbox(tracing=spans.tracing(), retry_policy=Fixed("1h"), max_attempts=2)

        def fail(event: EventEnvelope) -> None:
            seen.add(event)
            if len(seen) < 3:
                raise ValueError(f"postgres://u:{PASSWORD}@db says password={PASSWORD}")

        outbox.handler("Placed", id="receipt")(colour(fail))
        async with writer.transaction():
            event_id = await writer.write("Placed", "{}", headers={"authorization": f"Bearer {PASSWORD}"})
        assert (await outbox.drain()).retried == 1
        world.change("UPDATE outbox_event SET available_at = 0")
        assert (await outbox.drain()).dead == 1
        await outbox.dead.replay(event_id)
        assert (await outbox.drain()).delivered == 1
        (write,) = spans.named("write Placed")
        processes = spans.named("process Placed")
        assert [linked(span) for span in processes] == [[id_of(write)]] * 3
        assert [span.attributes["outbox.attempt"] for span in processes] == [1, 2, 1]
        assert [span.status.status_code for span in processes] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
        assert processes[0].attributes["error.type"] == "ValueError"
        (event,) = processes[0].events
        assert event.name == "exception"
        assert "password=***" in event.attributes["exception.message"]
        assert "in fail" in event.attributes["exception.stacktrace"]
        settles = [span.name for span in spans.all if span.kind is SpanKind.CLIENT]
        assert settles == ["nack Placed", "dead Placed", "ack Placed"]
        assert PASSWORD not in spans.text()
        assert len({(each.event_id, each.payload_json, str(dict(each.headers))) for each in seen}) == 1

    world.run(scenario)


def test_by_option_a_delivery_is_a_child_of_its_write_and_carries_its_baggage(world: World, spans: Spans) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(tracing=spans.tracing(parent=True))
        outbox.handler("Placed", id="receipt")(lambda _: seen.add(baggage.get_baggage("shop")))
        token = context.attach(baggage.set_baggage("shop", "7"))
        async with outbox.transaction():
            await outbox.write("Placed", "{}")
        context.detach(token)
        await outbox.drain()
        (write,), (process,) = spans.named("write Placed"), spans.named("process Placed")
        assert process.parent.span_id == id_of(write)
        assert process.context.trace_id == write.context.trace_id
        assert process.links == ()
        assert seen == ["7"]

    world.run(scenario)


def test_headers_of_the_user_stay_as_they_are_and_a_context_of_theirs_wins(world: World, spans: Spans) -> None:
    """Promise 12. What `traceparent` the caller sets is what the delivery is linked with."""

    async def scenario() -> None:
        seen, theirs = Collector(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        outbox = world.outbox(tracing=spans.tracing())
        outbox.handler("A", id="a")(seen.add)
        async with outbox.transaction():
            await outbox.write("A", "{}", headers={"traceparent": theirs, "mine": "1"})
            await outbox.write("A", "{}", headers={"mine": "2"})
        await outbox.drain()
        first, second = (dict(event.headers) for event in seen)
        assert first == {"traceparent": theirs, "mine": "1"}
        assert set(second) == {"traceparent", "mine"}
        assert linked(spans.named("process A")[0]) == [0xB7AD6B7169203331]
        assert spans.named("write A")[0].parent.span_id == 0xB7AD6B7169203331

    world.run(scenario)


def test_what_a_handler_discards_is_no_error(world: World, spans: Spans) -> None:
    async def scenario() -> None:
        outbox = world.outbox(tracing=spans.tracing())

        def discard(_: object) -> None:
            raise Discard("seen before")

        def give_up(_: object) -> None:
            raise DeadLetter("no")

        outbox.handler("A", id="a")(discard)
        outbox.handler("B", id="b")(give_up)
        async with outbox.transaction():
            await outbox.write("A", "{}")
            await outbox.write("B", "{}")
        await outbox.drain()
        (a,), (b,), (group,) = spans.named("process A"), spans.named("process B"), spans.named("settle")
        assert (a.status.status_code, b.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
        assert linked(group) == [id_of(a), id_of(b)]
        assert group.attributes["messaging.batch.message_count"] == 2

    world.run(scenario)


def test_an_insert_that_fails_ends_its_span_with_the_error_and_tells_the_hook(world: World, spans: Spans) -> None:
    class Told(WriterHook):
        def __init__(self) -> None:
            self.calls = Collector()

        def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope]:
            self.calls.add("before")
            return [each for each in events if each.event_type != "Dropped"]

        def after_write(self, events: list[EventEnvelope]) -> None:
            self.calls.add("after")

        def write_failed(self, events: list[EventEnvelope], error: BaseException) -> None:
            self.calls.add(type(error).__name__)

        def after_commit(self, events: list[EventEnvelope]) -> None:
            self.calls.add("committed")

    async def scenario() -> None:
        hook = Told()
        outbox = world.outbox(tracing=spans.tracing(), writer_hook=hook)
        async with outbox.transaction():
            event_id = await outbox.write("A", "{}")
            assert await outbox.write("Dropped", "{}") is None
        with pytest.raises(Exception, match="UNIQUE"):
            async with outbox.transaction():
                await outbox.write(EventEnvelope("A", payload_json="{}", event_id=event_id))
        good, bad = spans.named("write A")
        assert spans.named("write Dropped") == []
        assert (good.status.status_code, bad.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
        failure = bad.attributes["error.type"].rpartition(".")[2]
        assert hook.calls == ["before", "after", "before", "committed", "before", failure]
        assert not outbox._engine.writer._hook._ends, "nothing is kept of what has ended"

    world.run(scenario)


def test_what_is_written_in_a_session_of_sqlalchemy_carries_its_span_too(tmp_path: Path, spans: Spans) -> None:
    """There the rows are inserted later, by the session itself."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    seen = Collector()
    with Outbox(engine, tracing=spans.tracing(), poll_interval="1h") as outbox:
        outbox.handler("A", id="a")(seen.add)
        with Session(engine) as session, session.begin():
            outbox.write("A", "{}", tx=session)
        seen._wait(1, PATIENCE)
    engine.dispose()
    (write,), (process,) = spans.named("write A"), spans.named("process A")
    assert linked(process) == [id_of(write)]


class Broken(Tracing):
    """Raises wherever it is asked, or when a span is to end."""

    def __init__(self, *, late: bool) -> None:
        self._late = late

    def _broken(self, *_: object) -> Any:
        raise RuntimeError(f"password={PASSWORD}")

    def writing(self, events: list[EventEnvelope]) -> Any:
        return (events, self._broken) if self._late else self._broken()

    def delivering(self, claimed: Any, handler_id: str) -> Any:
        return self._broken if self._late else self._broken()

    def settling(self, settlements: Any) -> Any:
        return self._broken if self._late else self._broken()


@pytest.mark.parametrize("late", [False, True])
def test_a_tracing_that_raises_harms_nothing(world: World, late: bool, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        outbox = world.outbox(tracing=Broken(late=late))
        outbox.register("A", lambda _: None)
        async with outbox.transaction():
            await outbox.write("A", "{}")
        assert (await outbox.drain()).delivered == 1

    world.run(scenario)
    assert "tracing failed and is ignored" in caplog.text
    assert PASSWORD not in caplog.text


def test_a_settle_that_failed_is_traced_again(world: World, spans: Spans, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        outbox, tries = world.outbox(tracing=spans.tracing()), Collector()
        outbox.register("A", lambda _: None)
        settle = outbox._store.settle

        async def flaky(settlements: Any) -> Any:
            tries.add(None)
            if len(tries) == 1:
                raise ConnectionError("away")
            return await settle(settlements)

        monkeypatch.setattr(outbox._store, "settle", flaky)
        async with outbox:
            async with outbox.transaction():
                await outbox.write("A", "{}")
            await world.until_settled(1)
            await until(lambda: len(spans.named("ack A")) == 2)
        failed, ack = spans.named("ack A")
        assert failed.attributes["error.type"] == "ConnectionError"
        assert ack.status.status_code is StatusCode.UNSET

    world.run(scenario)


def test_without_the_library_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDriver, match=r"aftercommit\[otel\]"):
        OtelTracing()


def test_a_program_without_a_provider_pays_with_no_header(world: World) -> None:
    async def scenario() -> None:
        seen = Collector()
        outbox = world.outbox(tracing=OtelTracing())
        outbox.register("A", seen.add)
        async with outbox.transaction():
            await outbox.write("A", "{}")
        await outbox.drain()
        assert dict(seen[0].headers) == {}

    world.run(scenario)
