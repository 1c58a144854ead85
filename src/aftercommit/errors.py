"""The errors that a user can meet: each says what happened, with the values, and what to do.

OutboxError
├── NotInTransaction, TransactionEnded, UnsupportedTransaction, NotAwaited          the caller's transaction
├── InvalidEvent: InvalidName, InvalidPayload, PayloadTooLarge, InvalidHeaders,
│                 InvalidSchedule; UniqueKeyUnsupported                             what was to be written
├── InvalidPayloadType                                                              how a payload class was declared
├── PayloadNotText, UndecodablePayload                                              what was read from an event
├── DuplicateListener, InvalidListener, UnroutableEvent, InvalidHandler,
│   DuplicateHandler, HandlerTimeout                                                who was to receive it
├── InvalidOption, UnknownStore, ColourMismatch                                     how the outbox was built
├── MessageRefused, AddressRefused, BrokenRelay                                     what a relay was told
├── CannotStart                                                                     the command line
├── StoreBusy, StoreUnavailable, StoreFull, StoreReadOnly, StoreForbidden,
│   SchemaMissing, SchemaMismatch, UndecodableRow                                   the database
├── ReplicationRefused, SlotLost                                                    the tail of the database's log
├── EffectsUnsupported, CommitRefused, LeaseLost, CommitUnknown                     transactional handlers
├── InvalidMessage, InvalidSignature, MessageTooLarge                               what came to an inbox
├── RetryAfterError, Discard, DeadLetter, Unavailable (in aftercommit.events.outcome)      raised by handlers
└── WrongBatchResult (there too)                                                    what a handler of batches gave
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


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

    def __init_subclass__(cls, code: str = "") -> None:
        if code:
            cls.code = code


class NotInTransaction(OutboxError, RuntimeError, code="AC001"):
    """There is no open transaction that the event could be part of; nothing was written."""


class TransactionEnded(OutboxError, RuntimeError, code="AC002"):
    """The transaction was ended behind the outbox's back; what was written in it is not delivered from memory."""


class NotAwaited(OutboxError, RuntimeError, code="AC003"):
    """AsyncOutbox.write() was called and its result never awaited; the transaction was rolled back."""


class UnsupportedTransaction(OutboxError, TypeError, code="AC005"):
    """The object given as `tx` is nothing that this store can write through."""


class InvalidEvent(OutboxError, ValueError, code="AC010"):
    """The event breaks a rule of the envelope; the transaction was not touched."""


class PayloadTooLarge(InvalidEvent, code="AC011"):
    """The encoded payload is over the limit."""


class InvalidPayload(InvalidEvent, code="AC012"):
    """The payload is missing, given twice, or cannot be encoded as JSON."""


class PayloadNotText(OutboxError, ValueError, code="AC013"):
    """`payload_json` was asked of a binary payload that is not UTF-8."""


class InvalidName(InvalidEvent, code="AC014"):
    """An event type, aggregate type, id, tenant or key is empty, too long or not text."""


class InvalidHeaders(InvalidEvent, code="AC015"):
    """Headers map strings to strings."""


class InvalidSchedule(InvalidEvent, code="AC016"):
    """`available_at`, `deliver_after` or `occurred_at` make no sense, alone or together."""


class DuplicateListener(OutboxError, RuntimeError, code="AC021"):
    """One (aggregate type, event type) has one listener."""


class InvalidListener(OutboxError, TypeError, code="AC022"):
    """What was registered can never be run as a listener."""


class UnroutableEvent(OutboxError, RuntimeError, code="AC023"):
    """No listener of this process matches the event."""


class InvalidHandler(OutboxError, TypeError, code="AC024"):
    """What was declared cannot be a handler or fallback: its signature, route, id or options make no sense."""


class DuplicateHandler(OutboxError, RuntimeError, code="AC025"):
    """An id or alias names two handlers, or a handler or payload type has two fallbacks."""


class HandlerTimeout(OutboxError, TimeoutError, code="AC026"):
    """A handler ran for longer than its timeout. `still_runs`: it is sync, and nothing could end it."""

    def __init__(self, message: str, *, fix: str = "", still_runs: bool = False) -> None:
        super().__init__(message, fix=fix)
        self.still_runs = still_runs


class SchemaMissing(OutboxError, RuntimeError, code="AC030"):
    """The outbox table is not there."""


class SchemaMismatch(OutboxError, RuntimeError, code="AC031"):
    """The table was made by a release that this one cannot work with, or with another order.

    `kept`: the options under which the table does fit, where only they stand in the way.
    """

    def __init__(self, message: str, *, fix: str = "", kept: Mapping[str, object] | None = None) -> None:
        super().__init__(message, fix=fix)
        self.kept = kept


class StoreBusy(OutboxError, RuntimeError, code="AC032"):
    """Another writer held the database for longer than the busy timeout."""


class UndecodableRow(OutboxError, ValueError, code="AC033"):
    """A stored row cannot be turned back into an event."""


class StoreUnavailable(OutboxError, ConnectionError, code="AC034"):
    """The database cannot be reached, or refuses the login."""


class StoreForbidden(OutboxError, PermissionError, code="AC035"):
    """The database user lacks a right that the outbox needs."""


class StoreReadOnly(OutboxError, RuntimeError, code="AC036"):
    """The database takes no writes: a replica, or a session that is set to read-only."""


class StoreFull(OutboxError, OSError, code="AC037"):
    """The database has no room left for what was to be written."""


class InvalidOption(OutboxError, ValueError, code="AC040"):
    """An option has a value that it cannot have, or makes no sense in this wiring."""


class UnknownStore(OutboxError, ValueError, code="AC041"):
    """No store is known for the target."""


class ColourMismatch(OutboxError, TypeError, code="AC042"):
    """A blocking store under asyncio would stop the loop in silence; an async one cannot run under threads."""


class MissingDriver(OutboxError, ImportError, code="AC043"):
    """The library that speaks to this database is not installed."""


class ReplicationRefused(OutboxError, RuntimeError, code="AC044"):
    """The database cannot replicate the table as it is set up, or this user may not ask for it."""


class SlotLost(OutboxError, RuntimeError, code="AC045"):
    """The replication slot was dropped, or the server has thrown away what it had not read."""


class InvalidMessage(OutboxError, ValueError, code="AC095"):
    """What came from a broker or in a request is no message that could be consumed once: it has no id, or cannot be
    read."""


class InvalidSignature(OutboxError, PermissionError, code="AC096"):
    """A webhook was not signed with the secret, or too long ago."""


class MessageTooLarge(OutboxError, ValueError, code="AC097"):
    """The body of a request is over the limit."""


class BrokenRelay(OutboxError, RuntimeError, code="AC080"):
    """A relay has not answered for each of its messages, so none of them counts as sent."""


class MessageRefused(OutboxError, RuntimeError, code="AC081"):
    """A broker is there and did not take a message: nobody would get it, or it could not store it."""


class CannotStart(OutboxError, RuntimeError, code="AC050"):
    """The command line could not find or load the outbox that it was told to work with."""


class UniqueKeyUnsupported(OutboxError, RuntimeError, code="AC075"):
    """The event has a unique key, and where it is written none can be kept; nothing was written."""


class EffectsUnsupported(OutboxError, TypeError, code="AC070"):
    """A transactional handler was declared where it cannot work: by its store, its colour, or what it takes as tx."""


class CommitRefused(OutboxError, RuntimeError, code="AC071"):
    """A transactional handler tried to end its transaction, which ends together with its event."""


class LeaseLost(OutboxError, RuntimeError, code="AC072"):
    """While a transactional handler ran, its event became another holder's. What it did is rolled back."""


class CommitUnknown(OutboxError, ConnectionError, code="AC073"):
    """The commit of a transactional handler got no answer. If it happened the event is done; if not, it comes again."""


class InvalidPayloadType(OutboxError, TypeError, code="AC017"):
    """A class cannot serve as a type of payload, or what was declared for it does not fit it."""


class UndecodablePayload(OutboxError, ValueError, code="AC018"):
    """A stored payload cannot be turned into what the handler takes. Trying again would not help."""


class AddressRefused(OutboxError, RuntimeError, code="AC090"):
    """The address that the host of a webhook leads to is not one that may be called."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The advice for a name that there is not: the one that was probably meant, else all there are."""
    near = closest(name, known)
    return f"did you mean {near}?" if near else f"the options are {', '.join(sorted(known))}"


def closest(name: str, known: Iterable[str]) -> str | None:
    from difflib import get_close_matches  # nobody misspells a name in most programs

    return next(iter(get_close_matches(name, list(known), 1)), None)
