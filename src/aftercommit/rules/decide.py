"""What follows from a delivery: done, another attempt, or the dead letters."""

from __future__ import annotations

from datetime import timedelta

from aftercommit.errors import UndecodableRow, UnroutableEvent
from aftercommit.outcome import (
    DONE,
    RELEASE,
    Dead,
    Defer,
    Ok,
    Outcome,
    Raised,
    Result,
    Retry,
    RetryAfter,
    RetryAfterError,
)
from aftercommit.redact import error_text
from aftercommit.retry import RetryPolicy, delay_of, should_retry


def decide(result: Result, *, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    """The outcome of one delivery. `attempts` counts the failures before this one."""
    match result:
        case Ok(RetryAfter(delay)):
            return Defer(delay)
        case Ok():
            return DONE
        case Raised(interrupted=True):
            return RELEASE
        case Raised(error):
            return _after_failure(error, attempts + 1, policy, max_attempts)


def _after_failure(error: BaseException, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    text = error_text(error)
    if isinstance(error, UnroutableEvent | UndecodableRow):
        return Dead(text, counted=False)
    limit = getattr(policy, "max_attempts", None) or max_attempts
    if attempts >= limit:
        return Dead(text)
    if isinstance(error, RetryAfterError):
        return Retry(error.delay, text)
    if not should_retry(policy, error):
        return Dead(text)
    return Retry(delay_of(policy, attempts), text)


def decide_unroutable(*, age: timedelta, grace: timedelta | None, again: timedelta, error: UnroutableEvent) -> Outcome:
    """Dead at once without a grace; else given back uncounted until the event is that old (None: for ever)."""
    if grace is None or age < grace:
        return Defer(again)
    return Dead(error_text(error), counted=False)
