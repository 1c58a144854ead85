"""What follows from a delivery, to one handler or to several: done, another attempt, or the dead letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from aftercommit.config import OutboxConfig
from aftercommit.errors import UndecodablePayload, UndecodableRow, UnroutableEvent
from aftercommit.events.order import KeyRule
from aftercommit.events.outcome import (
    COMMITTED,
    DISCARDED,
    DONE,
    GAVE_UP,
    UNANSWERED,
    WRITTEN,
    Dead,
    DeadLetter,
    Defer,
    Discard,
    Done,
    FailureNote,
    Ok,
    Outcome,
    Raised,
    Release,
    Result,
    Retry,
    RetryAfter,
    RetryAfterError,
)
from aftercommit.events.redact import MAX_ERROR_LENGTH, error_text, storable, storable_traceback, text_of
from aftercommit.events.retry import RetryPolicy, delay_of, limit_of, should_retry
from aftercommit.events.retry_rules import LONGEST

_AT_ONCE: Final = timedelta(0)

#: What the columns for names hold.
_LONGEST_NAME: Final = 255


def decide(result: Result, *, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    """The outcome of one delivery. `attempts` counts the failures before this one."""
    if result is COMMITTED:
        return WRITTEN
    match result:
        case Ok(RetryAfter(delay)):
            return Defer(min(delay, LONGEST))
        case Ok():
            return DONE
        case Raised(interrupted=True):
            return Release(was_started=True)
        case Raised(Discard()):
            return DISCARDED
        case Raised(error):
            return _after_failure(error, attempts + 1, policy, max_attempts)


def _after_failure(error: BaseException, attempts: int, policy: RetryPolicy, max_attempts: int) -> Outcome:
    text = error_text(error)
    if isinstance(error, UnroutableEvent | UndecodableRow | UndecodablePayload):
        return Dead(text, counted=False)
    limit = limit_of(policy, max_attempts)
    if isinstance(error, DeadLetter) or attempts >= limit:
        return Dead(text)
    if isinstance(error, RetryAfterError):
        return Retry(min(error.delay, LONGEST), text, limit=limit)
    if not should_retry(policy, error):
        return Dead(text)
    return Retry(delay_of(policy, attempts), text, limit=limit)


def note_of(error: BaseException, *, attempt: int = 0, handler: str = "") -> FailureNote:
    """What is kept of a failure. Without an attempt nobody was called."""
    name = storable(type(error).__name__)[:_LONGEST_NAME]
    return FailureNote(attempt, handler[:_LONGEST_NAME], name, text_of(error), storable_traceback(error))


def noted(outcome: Outcome, *notes: FailureNote) -> Outcome:
    """The outcome with what is kept of the failures that led to it, if they did."""
    return replace(outcome, failures=(*outcome.failures, *notes)) if isinstance(outcome, Retry | Dead) else outcome


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
    return Dead(error_text(error), counted=False, failures=(note_of(error),))


def rule_of(config: OutboxConfig) -> KeyRule:
    """What holds back the later events of a key."""
    return KeyRule(stops=config.stop_on_first_failure, blocks=config.on_dead == "block")


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


def worker_lost(times: int) -> Dead:
    """The end of an event that nobody could report on."""
    text = f"worker lost: {times} processes that delivered this event ended without reporting an outcome"
    return Dead(text, counted=False, failures=(FailureNote(0, "", "WorkerLost", text),))


def still_to_run(ids: Sequence[str], done: Sequence[str]) -> list[str]:
    """The handlers without a verdict."""
    past = {name.removeprefix(GAVE_UP) for name in done}
    return [each for each in ids if each not in past]


def done_then(
    name: str, outcomes: Mapping[str, Outcome], done: Sequence[str], waiting: Sequence[str]
) -> tuple[str, ...]:
    """What a row says that serves several handlers once this one, the next of those that wait, is done in its own
    transaction: who has succeeded; nothing when all have, and the row is done."""
    has_failed = any(each.startswith(GAVE_UP) for each in done)
    has_failed = has_failed or not all(isinstance(each, Done) for each in outcomes.values())
    if name == waiting[-1] and not has_failed:
        return ()
    return (*done, *(each for each, outcome in outcomes.items() if isinstance(outcome, Done)), name)


def combine(outcomes: Mapping[str, Outcome], done: Sequence[str]) -> Outcome:
    """One outcome for the row; `done` is what it knew before. The row goes on while any of its handlers does."""
    if any(
        each is UNANSWERED for each in outcomes.values()
    ):  # who is done stands in the table, and perhaps one more than is known here
        return UNANSWERED
    succeeded = tuple(name for name in done if not name.startswith(GAVE_UP))
    succeeded += tuple(name for name, outcome in outcomes.items() if isinstance(outcome, Done))
    gave_up = tuple(name for name in done if name.startswith(GAVE_UP))
    gave_up += tuple(GAVE_UP + name for name, outcome in outcomes.items() if isinstance(outcome, Dead))
    errors = {name: each.error for name, each in outcomes.items() if isinstance(each, Retry | Dead)}
    delays = [each.delay for each in outcomes.values() if isinstance(each, Retry | Defer)]
    is_interrupted = any(isinstance(each, Release) for each in outcomes.values())
    if not delays and not is_interrupted:
        return _ended(outcomes, succeeded, gave_up, errors)
    if errors:
        # Nobody is called before the time that was set for it, so the longest wait counts.
        limit = _limit(outcomes.values())
        notes = _notes(outcomes.values())
        return Retry(max(delays, default=_AT_ONCE), _text(errors), succeeded + gave_up, limit, notes)
    if is_interrupted:
        return Release(was_started=True, done_handlers=succeeded + gave_up)
    return Defer(max(delays), succeeded + gave_up)


def _ended(
    outcomes: Mapping[str, Outcome], succeeded: tuple[str, ...], gave_up: tuple[str, ...], errors: Mapping[str, str]
) -> Outcome:
    if not gave_up:
        return WRITTEN if any(each is WRITTEN for each in outcomes.values()) else DONE
    earlier = {name.removeprefix(GAVE_UP): "gave up at an earlier attempt" for name in gave_up}
    is_counted = any(each.counted for each in outcomes.values() if isinstance(each, Dead))
    return Dead(_text({**earlier, **errors}), is_counted, succeeded, _notes(outcomes.values()))


def _notes(outcomes: Collection[Outcome]) -> tuple[FailureNote, ...]:
    return tuple(note for each in outcomes if isinstance(each, Retry | Dead) for note in each.failures)


def _limit(outcomes: Collection[Outcome]) -> int | None:
    """The largest among those that go on; none where one goes on that has not failed."""
    going_on = [each for each in outcomes if not isinstance(each, Done | Dead)]
    limits = [each.limit for each in going_on if isinstance(each, Retry) and each.limit is not None]
    return max(limits) if limits and len(limits) == len(going_on) else None


def _text(errors: Mapping[str, str]) -> str:
    return storable("; ".join(f"{name}: {error}" for name, error in errors.items()))


def without_text(outcome: Outcome) -> Outcome:
    """The same verdict without the words that a database may choke on."""
    match outcome:
        case Retry(delay, _, done, limit):
            return Retry(delay, "", done, limit)
        case Dead(_, counted, done):
            return Dead("", counted, done)
        case _:
            return outcome
