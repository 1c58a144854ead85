"""The user's tracing around writing, delivering and settling. Whatever it raises harms nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from typing import Final, TypeVar

from aftercommit.events.claims import Claimed, RowKey, Settlement
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.log import Log
from aftercommit.events.redact import error_text
from aftercommit.hooks import SpanEnd, Tracing, WriterHook, at_work
from aftercommit.meter import Meter
from aftercommit.ports import EventStore

log = Log("aftercommit.tracing")

T = TypeVar("T")

#: There is no span to end.
_NOTHING: Final[SpanEnd] = lambda _: None  # noqa: E731


class Spans:
    """A tracing that never raises."""

    def __init__(self, tracing: Tracing, meter: Meter) -> None:
        self._tracing = tracing
        self._meter = meter

    def writing(self, events: list[EventEnvelope]) -> tuple[list[EventEnvelope], SpanEnd]:
        traced, end = self._asked(lambda: self._tracing.writing(list(events)), (events, _NOTHING))
        return traced, self._safe(end)

    def delivering(self, claimed: Claimed, handler_id: str, context: Context) -> SpanEnd:
        """In the context of the delivery: what is current there is current in the handler."""
        return self._safe(self._asked(lambda: context.run(self._tracing.delivering, claimed, handler_id), _NOTHING))

    def settling(self, settlements: Sequence[Settlement]) -> SpanEnd:
        return self._safe(self._asked(lambda: self._tracing.settling(settlements), _NOTHING))

    def _safe(self, end: SpanEnd) -> SpanEnd:
        return lambda error: self._asked(lambda: end(error), None)

    def _asked(self, question: Callable[[], T], otherwise: T) -> T:
        try:
            return question()
        except Exception as error:
            if self._meter.may_say("tracing"):
                log.warning("tracing failed and is ignored: %s", error_text(error))
            return otherwise


class TracedWrites(WriterHook):
    """The user's own hook, and a span behind it for what it has left."""

    def __init__(self, spans: Spans, hook: WriterHook | None) -> None:
        self._spans = spans
        self._hook = WriterHook() if at_work(hook) is None or hook is None else hook
        #: By the id of the first event of a batch.
        self._ends: dict[str, SpanEnd] = {}

    def before_write(self, events: list[EventEnvelope]) -> list[EventEnvelope] | None:
        left = self._hook.before_write(events)
        if not left or not isinstance(left, list):  # what makes no sense is refused by who asked
            return left
        traced, end = self._spans.writing(left)
        self._ends[traced[0].event_id] = end
        return traced

    def after_write(self, events: list[EventEnvelope]) -> None:
        self._end(events, None)
        self._hook.after_write(events)

    def write_failed(self, events: list[EventEnvelope], error: BaseException) -> None:
        self._end(events, error)
        self._hook.write_failed(events, error)

    def _end(self, events: list[EventEnvelope], error: BaseException | None) -> None:
        end = self._ends.pop(events[0].event_id, None)
        if end is not None:
            end(error)

    def after_commit(self, events: list[EventEnvelope]) -> None:
        self._hook.after_commit(events)

    def after_rollback(self, events: list[EventEnvelope]) -> None:
        self._hook.after_rollback(events)


class TracedSettles:
    """A store as the settler uses it, with a span around each group."""

    def __init__(self, store: EventStore, spans: Spans) -> None:
        self._store = store
        self._spans = spans

    async def settle(self, settlements: Sequence[Settlement]) -> Collection[RowKey]:
        end = self._spans.settling(settlements)
        try:
            refused = await self._store.settle(settlements)
        except BaseException as error:
            end(error)
            raise
        end(None)
        return refused

    def is_row_fault(self, error: Exception) -> bool:
        return self._store.is_row_fault(error)
