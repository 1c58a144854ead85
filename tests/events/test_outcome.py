"""What handlers may return or raise about their delivery, and the outcomes that are written."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import get_args

import pytest

from aftercommit import DispatchResult, Done, InvalidOption, OutboxError, RetryAfter, RetryAfterError
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Ok, Outcome, Raised, Release, Retry

SECONDS_30 = timedelta(seconds=30)
SENSELESS = [None, -1, timedelta(seconds=-1), "-1s", "soon", True, float("nan"), float("inf")]


def refused(build) -> InvalidOption:
    with pytest.raises(InvalidOption) as caught:
        build()
    assert caught.value.fix
    return caught.value


# --- what a handler may return


def test_there_is_one_way_to_be_done():
    """TC-033."""
    assert Done() == Done() == DONE
    assert hash(Done()) == hash(DONE)
    assert isinstance(DONE, Done)
    assert set(get_args(DispatchResult)) == {Done, RetryAfter}


@pytest.mark.parametrize("delay", [SECONDS_30, 30, 30.0, "30s", "30000ms"], ids=repr)
def test_retry_after_keeps_its_delay(delay):
    """TC-034."""
    assert RetryAfter(delay).delay == SECONDS_30
    assert RetryAfter(delay) == RetryAfter(SECONDS_30)
    assert RetryAfter(delay) != RetryAfter(1)


def test_retry_after_no_time_is_allowed():
    """TC-035."""
    assert RetryAfter(0).delay == timedelta(0)


@pytest.mark.parametrize("delay", SENSELESS, ids=repr)
def test_retry_after_refuses_what_is_no_delay(delay):
    """TC-036."""
    assert f"delay={delay!r}" in refused(lambda: RetryAfter(delay)).message


def test_what_a_handler_returns_cannot_be_changed():
    result = RetryAfter(30)

    with pytest.raises(AttributeError):
        result.delay = timedelta(0)
    assert copy.copy(result) == result == pickle.loads(pickle.dumps(result))  # noqa: S301 - our own bytes


# --- what a handler may raise


def test_retry_after_error_keeps_delay_message_and_cause():
    """TC-037."""
    cause = ValueError("why")
    bare = RetryAfterError("30s")
    said = RetryAfterError(30, "come back later")
    caused = RetryAfterError(SECONDS_30, cause=cause)
    both = RetryAfterError(30, "come back later", cause)

    assert [each.delay for each in (bare, said, caused, both)] == [SECONDS_30] * 4
    assert [each.message for each in (said, both)] == ["come back later"] * 2
    assert "[AC060]" in str(bare)
    assert bare.message
    assert "come back later" in str(both)
    assert [each.__cause__ for each in (bare, said, caused, both)] == [None, None, cause, cause]
    assert RetryAfterError(0).delay == timedelta(0)


def test_retry_after_error_is_raised_like_any_error():
    cause = ValueError("why")

    with pytest.raises(OutboxError) as caught:
        raise RetryAfterError("30s") from cause

    assert caught.value.__cause__ is cause
    assert caught.value.delay == SECONDS_30


@pytest.mark.parametrize("delay", SENSELESS, ids=repr)
@pytest.mark.parametrize(
    "build",
    [
        RetryAfterError,
        lambda delay: RetryAfterError(delay, "message"),
        lambda delay: RetryAfterError(delay, cause=ValueError()),
        lambda delay: RetryAfterError(delay, "message", ValueError()),
    ],
    ids=["delay", "message", "cause", "both"],
)
def test_retry_after_error_refuses_what_is_no_delay(build, delay):
    """TC-038."""
    assert f"delay={delay!r}" in refused(lambda: build(delay)).message


def test_retry_after_error_survives_a_process_border():
    """A handler may run its work in a pool of processes; an error that cannot be unpickled breaks the pool."""
    error = RetryAfterError("30s", "come back later")
    error.add_note("a note")

    for twin in (copy.copy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - our own bytes
        assert type(twin) is RetryAfterError
        assert (twin.delay, twin.message, twin.__notes__) == (SECONDS_30, "come back later", ["a note"])


# --- what is written


@pytest.mark.parametrize("outcome", [DONE, Retry(SECONDS_30, "e"), Defer(SECONDS_30), Dead("e"), RELEASE], ids=repr)
def test_outcomes_are_values(outcome):
    assert type(outcome) in get_args(Outcome)
    assert outcome == copy.copy(outcome)
    assert hash(outcome) == hash(copy.copy(outcome))
    with pytest.raises((TypeError, AttributeError)):
        outcome.error = "other"


def test_there_are_no_other_outcomes():
    assert set(get_args(Outcome)) == {Done, Retry, Defer, Dead, Release}


def test_a_dead_letter_counts_its_attempt_unless_no_handler_was_called():
    assert Dead("e").counted
    assert not Dead("e", counted=False).counted


def test_a_call_ends_in_a_value_or_an_error():
    error = ValueError()

    assert Ok().value is None
    assert Ok(7).value == 7
    assert Raised(error).error is error
    assert not Raised(error).interrupted
