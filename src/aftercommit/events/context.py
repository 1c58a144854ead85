"""What a handler may know beside the payload: about the event, in a fallback about the failure, and the context, which
is captured when the event is written and restored around its handlers.

Context is stored among the headers, under a reserved prefix, so that both can be shown apart again. The names of W3C
trace context are stored as they are: relays pass headers on, and a tracer at the other end looks for these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import datetime
from inspect import iscoroutine, iscoroutinefunction
from typing import Any, Final

import msgspec

from aftercommit.errors import InvalidHeaders, InvalidOption
from aftercommit.events.fields import headers_of, read_only
from aftercommit.events.log import Log
from aftercommit.events.queued import Source
from aftercommit.events.redact import error_text

log = Log("aftercommit.context")

#: Headers whose names begin so are context. write() refuses them among its `headers`.
PREFIX: Final = "ac-context-"

#: W3C trace context and baggage.
TRACE_NAMES: Final = frozenset({"traceparent", "tracestate", "baggage"})

#: A function without arguments that says what to carry, asked at every write().
ContextProvider = Callable[[], Mapping[str, str]]

_NOTHING: Final = read_only({})
#: The context of the event that is being handled here.
carried: ContextVar[Mapping[str, str]] = ContextVar("aftercommit_context", default=_NOTHING)


class EventMetadata(msgspec.Struct, frozen=True):
    """About the event and this delivery. A handler that has a second parameter gets it there."""

    event_id: str
    event_type: str
    aggregate_type: str
    aggregate_id: str | None
    tenant_id: str | None
    key: str | None
    handler_id: str
    #: 1 for the first delivery; each failed one adds 1.
    attempt: int
    #: The database's time of the row; from memory, right after the commit, the application's time of the event.
    created_at: datetime
    headers: Mapping[str, str]
    context: Mapping[str, str]
    #: From memory right after the commit, or out of the table.
    source: Source = Source.COLD

    @property
    def is_retry(self) -> bool:
        return self.attempt > 1


class FailureContext(msgspec.Struct, frozen=True):
    """Why a fallback is called."""

    event_id: str
    handler_id: str
    key: str | None
    created_at: datetime
    #: Failed deliveries, this one included.
    failure_count: int
    #: What the handler raised; a StoredError where only the text is left of it.
    last_error: BaseException
    #: True when the attempts are used up, False when the error was not worth another.
    retries_exhausted: bool
    context: Mapping[str, str]


class StoredError(Exception):
    """An error of which only the text is left, because the process that met it is gone."""


def current_context() -> Mapping[str, str]:
    """The context of the event that is being handled here; empty elsewhere. It is itself a provider:
    with `context_providers=[current_context]` events that handlers write carry on the context of their own event."""
    return carried.get()


def restore(context: Mapping[str, str]) -> None:
    """Make this the current context for the rest of the running contextvars context: of one delivery,
    `copied = copy_context(); copied.run(restore, context)`."""
    carried.set(read_only(context))


def split(headers: Mapping[str, str]) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Headers and context of a stored event. Names of trace context are in both: they came from either."""
    if not headers:
        return headers, headers
    plain = {name: value for name, value in headers.items() if not name.startswith(PREFIX)}
    context = {name: value for name, value in plain.items() if name in TRACE_NAMES}
    for name, value in headers.items():
        if name.startswith(PREFIX):
            context[name.removeprefix(PREFIX)] = value
    return read_only(plain), read_only(context)


def as_headers(context: Mapping[str, str]) -> dict[str, str]:
    """Context under the names that it is stored with, from which `split` takes it again."""
    return {name if name in TRACE_NAMES else PREFIX + name: value for name, value in context.items()}


def checked(context: Any) -> Mapping[str, str]:
    """A mapping from strings to strings, by the rules of headers."""
    return headers_of(context, "context", "context entry")


def refuse_reserved(headers: Any) -> None:
    """Headers that would turn into context on the way."""
    for name in headers if isinstance(headers, Mapping) else ():
        if isinstance(name, str) and name.startswith(PREFIX):
            raise InvalidHeaders(
                f"the header {name!r} begins with {PREFIX!r}, which is reserved",
                fix=f"pass context={{{name.removeprefix(PREFIX)!r}: …}}, or rename the header",
            )


class Providers:
    """What is asked for context at every write, in order; of equal names the last one wins."""

    def __init__(self, providers: Iterable[ContextProvider] = ()) -> None:
        self._providers = tuple(_checked_provider(provider) for provider in providers)
        self._failing: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._providers)

    def capture(self) -> dict[str, str]:
        """All that they say. One that fails is left out, and logged when it begins to fail."""
        captured: dict[str, str] = {}
        for number, provider in enumerate(self._providers):
            try:
                captured.update(checked(_plain(provider())))
                self._failing.discard(number)
            except Exception as error:
                # Once: a provider that is broken would else say so at every write.
                if number not in self._failing:
                    self._failing.add(number)
                    text = error_text(error)
                    log.warning("the context provider %r failed and is left out: %s", provider, text, error=error)
        return captured


def _plain(value: Any) -> Any:
    if iscoroutine(value):
        value.close()
    return value


def _checked_provider(provider: Any) -> ContextProvider:
    if not callable(provider) or iscoroutinefunction(provider):
        raise InvalidOption(
            f"the context provider {provider!r} is no plain function",
            fix="pass functions without arguments that return a dict of strings: context_providers=[request_context]",
        )
    return provider  # type: ignore[no-any-return]
