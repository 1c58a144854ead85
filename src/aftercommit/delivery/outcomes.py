"""What follows from a delivery: done, another attempt, or the dead letters."""

from __future__ import annotations

from datetime import timedelta

from aftercommit.errors import UndecodablePayload, UndecodableRow, UnroutableEvent
from aftercommit.events.order import KeyRule
from aftercommit.events.outcome import (
    DONE,
    Dead,
    DeadLetter,
    Defer,
    Discard,
    Done,
    Ok,
    Outcome,
    Raised,
    Release,
    Result,
    Retry,
    RetryAfter,
    RetryAfterError,
)
from aftercommit.events.redact import MAX_ERROR_LENGTH, error_text
from aftercommit.events.retry import RetryPolicy, delay_of, limit_of, should_retry
from aftercommit.events.retry_rules import LONGEST


def decide(result: Result, *, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    """The outcome of one delivery. `attempts` counts the failures before this one."""
    match result:
        case Ok(RetryAfter(delay)):
            return Defer(min(delay, LONGEST))
        case Ok():
            return DONE
        case Raised(interrupted=True):
            return Release(was_started=True)
        case Raised(Discard()):
            return DONE
        case Raised(error):
            return _after_failure(error, attempts + 1, policy, max_attempts)


def _after_failure(error: BaseException, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    text = error_text(error)
    if isinstance(error, UnroutableEvent | UndecodableRow | UndecodablePayload):
        return Dead(text, counted=False)
    if isinstance(error, DeadLetter) or attempts >= limit_of(policy, max_attempts):
        return Dead(text)
    if isinstance(error, RetryAfterError):
        return Retry(min(error.delay, LONGEST), text)
    if not should_retry(policy, error):
        return Dead(text)
    return Retry(delay_of(policy, attempts), text)


def falls_back(error: BaseException, outcome: Outcome) -> bool:
    """Whether an error that ended an event is a fallback's business: not when nobody was called, nor by request."""
    return isinstance(outcome, Dead) and outcome.counted and not isinstance(error, DeadLetter)


def both_failed(error: BaseException, fallback_error: BaseException) -> Dead:
    """The end of an event whose fallback failed too. Both errors are kept, however long they are."""
    half = MAX_ERROR_LENGTH // 2 - 20
    return Dead(f"{error_text(error)[:half]}; the fallback failed too: {error_text(fallback_error)[:half]}")


def decide_unroutable(*, age: timedelta, grace: timedelta | None, again: timedelta, error: UnroutableEvent) -> Outcome:
    """Dead at once without a grace; else given back uncounted until the event is that old (None: for ever)."""
    # An age below zero: the database's clock went back.
    if grace is None or max(age, timedelta(0)) < grace:
        return Defer(again)
    return Dead(error_text(error), counted=False)


def goes_on(outcome: Outcome, rule: KeyRule) -> bool:
    """Whether the next event of a key may follow in order upon this outcome."""
    match outcome:
        case Done():
            return True
        case Dead():
            return not rule.blocks
        case Retry() | Defer():
            return not rule.stops
        case Release():
            return False


def worker_lost(times: int) -> str:
    """Why an event is given up that nobody could report on."""
    return f"worker lost: {times} processes that delivered this event ended without reporting an outcome"
