"""Spans by OpenTelemetry, over the commit: `Outbox(target, tracing=OtelTracing())`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from aftercommit.errors import MissingDriver
from aftercommit.events.claims import Claimed, RowKey, Settlement, partition_of
from aftercommit.events.context import as_headers, split
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import Dead, Defer, Discard, Done, Release, Retry
from aftercommit.events.redact import error_text, text_of, traceback_text
from aftercommit.hooks import SpanEnd, Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

#: By the messaging conventions; they know no outbox, and allow for a name of one's own.
SYSTEM: Final = "outbox"

#: What a row was settled as.
_SETTLED: Final = {Done: "ack", Retry: "nack", Defer: "nack", Release: "nack", Dead: "dead"}

#: More than are ever unsettled: both lanes may hold 1,000 events each. What is beyond loses its link and nothing else.
_REMEMBERED: Final = 10_000

#: As many as the SDK keeps of one span.
_LINKS: Final = 128


class OtelTracing(Tracing):
    """Spans for writing (PRODUCER), delivering (CONSUMER) and settling (CLIENT), by the messaging conventions.

    The context of a write goes into the headers of its event (`traceparent`, `tracestate`, `baggage`, or whatever the
    program's propagators write), and every delivery is linked with it: from memory, out of the table, in another
    process, at each retry and after a replay. With `parent=True` a delivery is a child of the write instead.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None, *, parent: bool = False) -> None:
        """Without a provider the program's own is used, whenever it is set."""
        self._otel = otel = Otel()
        self._tracer = otel.trace.get_tracer("aftercommit", version("aftercommit"), tracer_provider)
        self._parent = parent
        #: The spans whose outcome is not settled yet, with the event type.
        self._unsettled: dict[RowKey, tuple[SpanContext, str]] = {}

    def writing(self, events: list[EventEnvelope]) -> tuple[list[EventEnvelope], SpanEnd]:
        spans, traced = [], []
        for event in events:
            span, carrying = self._write(event)
            spans.append(span)
            traced.append(carrying)

        def end(error: BaseException | None) -> None:
            for span in spans:
                self._end(span, error)

        return traced, end

    def _write(self, event: EventEnvelope) -> tuple[Any, EventEnvelope]:
        """A context that the caller gave with the event was given on purpose: it is the span's parent, and stays."""
        otel, given = self._otel, split(event.headers)[1]
        has_own = bool(given) and self._origin(given).is_valid
        span = self._tracer.start_span(
            f"write {event.event_type}",
            context=otel.propagate.extract(given) if has_own else None,
            kind=otel.trace.SpanKind.PRODUCER,
            attributes={
                **_operation("create", "write", event.event_type),
                "messaging.message.id": event.event_id,
                "messaging.destination.partition.id": str(partition_of(event.key or event.event_id)),
            },
        )
        if has_own:
            return span, event
        carrier: dict[str, str] = {}
        otel.propagate.inject(carrier, otel.trace.set_span_in_context(span))
        return span, event.replace(headers={**as_headers(carrier), **event.headers}) if carrier else event

    def delivering(self, claimed: Claimed, handler_id: str) -> SpanEnd:
        otel, event = self._otel, claimed.event
        carried = split(event.headers)[1]
        origin = self._origin(carried)
        restored = otel.propagate.extract(carried, otel.context.Context())
        span = self._tracer.start_span(
            f"process {event.event_type}",
            # Never the one that is current here: a worker was started in whatever span was current then.
            context=restored if self._parent else otel.context.Context(),
            kind=otel.trace.SpanKind.CONSUMER,
            links=[otel.trace.Link(origin)] if origin.is_valid and not self._parent else [],
            attributes={
                **_operation("process", "process", event.event_type),
                "messaging.message.id": event.event_id,
                "messaging.consumer.group.name": handler_id,
                "messaging.client.id": claimed.lease.owner,
                "outbox.attempt": claimed.attempts + 1,
                "outbox.source": claimed.source.value,
            },
        )
        otel.context.attach(otel.trace.set_span_in_context(span, restored))
        if span.is_recording():
            if len(self._unsettled) >= _REMEMBERED:
                self._unsettled.clear()
            self._unsettled[claimed.lease.key] = span.get_span_context(), event.event_type
        # What a handler discards it has handled.
        return lambda error: self._end(span, None if isinstance(error, Discard) else error)

    def settling(self, settlements: Sequence[Settlement]) -> SpanEnd:
        """One span for a group: of a lone event below its delivery, else linked with all of them. None for rows that
        are given back undelivered."""
        otel = self._otel
        keys = [each.lease.key for each in settlements]
        told = {key: found for key in keys if (found := self._unsettled.pop(key, None)) is not None}
        if not told:
            return lambda _: None
        contexts, types = zip(*told.values(), strict=True)
        if len(told) == 1:
            name = next(_SETTLED[type(each.outcome)] for each in settlements if each.lease.key in told)
            about: dict[str, Any] = {"messaging.message.id": next(iter(told)).event_id}
            around = otel.trace.set_span_in_context(otel.trace.NonRecordingSpan(contexts[0]), otel.context.Context())
            title, links = f"{name} {types[0]}", []
        else:
            name = title = "settle"
            about = {"messaging.batch.message_count": len(told)}
            around, links = otel.context.Context(), [otel.trace.Link(each) for each in contexts[:_LINKS]]
        operation = _operation("settle", name, types[0] if len(set(types)) == 1 else None)
        kind = otel.trace.SpanKind.CLIENT
        span = self._tracer.start_span(title, context=around, kind=kind, links=links, attributes={**operation, **about})

        def end(error: BaseException | None) -> None:
            if error is not None:
                self._unsettled.update(told)  # it is written again, or one by one
            self._end(span, error)

        return end

    def _origin(self, carried: Mapping[str, str]) -> SpanContext:
        """Where the event was written."""
        trace = self._otel.trace
        context = self._otel.propagate.extract(carried, self._otel.context.Context())
        origin: SpanContext = trace.get_current_span(context).get_span_context()
        return origin

    def _end(self, span: Any, error: BaseException | None) -> None:
        """With the error as it may leave the process: `record_exception` would take it as it is, secrets and all."""
        if error is not None and span.is_recording():
            kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
            span.set_attribute("error.type", kind)
            span.add_event(
                "exception",
                {
                    "exception.type": kind,
                    "exception.message": text_of(error),
                    "exception.stacktrace": traceback_text(error),
                },
            )
            span.set_status(self._otel.trace.StatusCode.ERROR, error_text(error))
        span.end()


def _operation(kind: str, name: str, event_type: str | None) -> dict[str, str]:
    told = {
        "messaging.system": SYSTEM,
        "messaging.operation.type": kind,
        "messaging.operation.name": name,
        "messaging.destination.name": event_type,
    }
    return {name: value for name, value in told.items() if value is not None}


class Otel:
    """The API of OpenTelemetry, which nobody else loads."""

    def __init__(self) -> None:
        try:
            from opentelemetry import context, metrics, propagate, trace  # noqa: PLC0415
        except ImportError as error:
            raise MissingDriver(
                f"opentelemetry-api is not installed ({error})", fix='pip install "aftercommit[otel]"'
            ) from error
        self.context: Any = context
        self.metrics: Any = metrics
        self.propagate: Any = propagate
        self.trace: Any = trace
