"""The errors that a user can meet: each says what happened, with the values, and what to do.

OutboxError
├── NotInTransaction, TransactionEnded, UnsupportedTransaction, NotAwaited          the caller's transaction
├── InvalidEvent: InvalidName, InvalidPayload, PayloadTooLarge, InvalidHeaders,
│                 InvalidSchedule                                                   what was to be written
├── InvalidPayloadType                                                              how a payload class was declared
├── PayloadNotText, UndecodablePayload                                              what was read from an event
├── DuplicateListener, InvalidListener, UnroutableEvent, InvalidHandler,
│   DuplicateHandler, HandlerTimeout                                                who was to receive it
├── InvalidOption, UnknownStore, ColourMismatch                                     how the outbox was built
├── StoreBusy, SchemaMissing, SchemaMismatch, UndecodableRow                        the database
└── RetryAfterError, Discard, DeadLetter, Unavailable (in aftercommit.events.outcome)      raised by handlers
"""

from __future__ import annotations

from collections.abc import Iterable


class OutboxError(Exception):
    """The root of all errors of aftercommit. `code` is stable; `fix` says what to do."""

    code = "AC000"

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        advice = f"\n  Fix: {self.fix}" if self.fix else ""
        return f"[{self.code}] {self.message}{advice}"


class NotInTransaction(OutboxError, RuntimeError):
    """There is no open transaction that the event could be part of; nothing was written."""

    code = "AC001"


class TransactionEnded(OutboxError, RuntimeError):
    """The transaction was ended behind the outbox's back; what was written in it is not delivered from memory."""

    code = "AC002"


class NotAwaited(OutboxError, RuntimeError):
    """AsyncOutbox.write() was called and its result never awaited; the transaction was rolled back."""

    code = "AC003"


class UnsupportedTransaction(OutboxError, TypeError):
    """The object given as `tx` is nothing that this store can write through."""

    code = "AC005"


class InvalidEvent(OutboxError, ValueError):
    """The event breaks a rule of the envelope; the transaction was not touched."""

    code = "AC010"


class PayloadTooLarge(InvalidEvent):
    """The encoded payload is over the limit."""

    code = "AC011"


class InvalidPayload(InvalidEvent):
    """The payload is missing, given twice, or cannot be encoded as JSON."""

    code = "AC012"


class PayloadNotText(OutboxError, ValueError):
    """`payload_json` was asked of a binary payload that is not UTF-8."""

    code = "AC013"


class InvalidName(InvalidEvent):
    """An event type, aggregate type, id, tenant or key is empty, too long or not text."""

    code = "AC014"


class InvalidHeaders(InvalidEvent):
    """Headers map strings to strings."""

    code = "AC015"


class InvalidSchedule(InvalidEvent):
    """`available_at`, `deliver_after` or `occurred_at` make no sense, alone or together."""

    code = "AC016"


class DuplicateListener(OutboxError, RuntimeError):
    """One (aggregate type, event type) has one listener."""

    code = "AC021"


class InvalidListener(OutboxError, TypeError):
    """What was registered can never be run as a listener."""

    code = "AC022"


class UnroutableEvent(OutboxError, RuntimeError):
    """No listener of this process matches the event."""

    code = "AC023"


class InvalidHandler(OutboxError, TypeError):
    """What was declared cannot be a handler or fallback: its signature, route, id or options make no sense."""

    code = "AC024"


class DuplicateHandler(OutboxError, RuntimeError):
    """An id or alias names two handlers, or a handler or payload type has two fallbacks."""

    code = "AC025"


class HandlerTimeout(OutboxError, TimeoutError):
    """A handler ran for longer than its timeout. `still_runs`: it is sync, and nothing could end it."""

    code = "AC026"

    def __init__(self, message: str, *, fix: str = "", still_runs: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.still_runs = still_runs


class SchemaMissing(OutboxError, RuntimeError):
    """The outbox table is not there."""

    code = "AC030"


class SchemaMismatch(OutboxError, RuntimeError):
    """The table was made by a release that this one cannot work with."""

    code = "AC031"


class StoreBusy(OutboxError, RuntimeError):
    """Another writer held the database for longer than the busy timeout."""

    code = "AC032"


class UndecodableRow(OutboxError, ValueError):
    """A stored row cannot be turned back into an event."""

    code = "AC033"


class StoreUnavailable(OutboxError, ConnectionError):
    """The database cannot be reached, or refuses the login."""

    code = "AC034"


class StoreForbidden(OutboxError, PermissionError):
    """The database user lacks a right that the outbox needs."""

    code = "AC035"


class StoreReadOnly(OutboxError, RuntimeError):
    """The database takes no writes: a replica, or a session that is set to read-only."""

    code = "AC036"


class InvalidOption(OutboxError, ValueError):
    """An option has a value that it cannot have, or makes no sense in this wiring."""

    code = "AC040"


class UnknownStore(OutboxError, ValueError):
    """No store is known for the target."""

    code = "AC041"


class ColourMismatch(OutboxError, TypeError):
    """A blocking store under asyncio would stop the loop in silence; an async one cannot run under threads."""

    code = "AC042"


class MissingDriver(OutboxError, ImportError):
    """The library that speaks to this database is not installed."""

    code = "AC043"


class InvalidPayloadType(OutboxError, TypeError):
    """A class cannot serve as a type of payload, or what was declared for it does not fit it."""

    code = "AC017"


class UndecodablePayload(OutboxError, ValueError):
    """A stored payload cannot be turned into what the handler takes. Trying again would not help."""

    code = "AC018"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The advice for a name that there is not: the one that was probably meant, else all there are."""
    near = closest(name, known)
    return f"did you mean {near}?" if near else f"the options are {', '.join(sorted(known))}"


def closest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # nobody misspells a name in most programs

    return next(iter(get_close_matches(name, list(known), 1)), None)
