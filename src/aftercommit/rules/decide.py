"""What follows from a delivery: done, another attempt, or the dead letters."""

from __future__ import annotations

from datetime import timedelta

from aftercommit.errors import UndecodableRow, UnroutableEvent
from aftercommit.outcome import (
    DONE,
    Dead,
    Defer,
    Ok,
    Outcome,
    Raised,
    Release,
    Result,
    Retry,
    RetryAfter,
    RetryAfterError,
)
from aftercommit.redact import error_text
from aftercommit.retry import RetryPolicy, delay_of, limit_of, should_retry
from aftercommit.retry_rules import LONGEST


def decide(result: Result, *, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    """The outcome of one delivery. `attempts` counts the failures before this one."""
    match result:
        case Ok(RetryAfter(delay)):
            return Defer(min(delay, LONGEST))
        case Ok():
            return DONE
        case Raised(interrupted=True):
            return Release(was_started=True)
        case Raised(error):
            return _after_failure(error, attempts + 1, policy, max_attempts)


def _after_failure(error: BaseException, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    text = error_text(error)
    if isinstance(error, UnroutableEvent | UndecodableRow):
        return Dead(text, counted=False)
    if attempts >= limit_of(policy, max_attempts):
        return Dead(text)
    if isinstance(error, RetryAfterError):
        return Retry(min(error.delay, LONGEST), text)
    if not should_retry(policy, error):
        return Dead(text)
    return Retry(delay_of(policy, attempts), text)


def decide_unroutable(*, age: timedelta, grace: timedelta | None, again: timedelta, error: UnroutableEvent) -> Outcome:
    """Dead at once without a grace; else given back uncounted until the event is that old (None: for ever)."""
    # An age below zero: the database's clock went back.
    if grace is None or max(age, timedelta(0)) < grace:
        return Defer(again)
    return Dead(error_text(error), counted=False)
