"""What follows from a delivery: the reference cases, and the rules that hold for any result, policy and count."""

from __future__ import annotations

from datetime import timedelta
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aftercommit import Done, Exponential, Fixed, Jittered, NoRetry, RetryAfter, RetryAfterError
from aftercommit.delivery.outcomes import both_failed, decide, decide_unroutable, falls_back
from aftercommit.errors import UndecodablePayload, UndecodableRow, UnroutableEvent
from aftercommit.events.outcome import DONE, Dead, DeadLetter, Defer, Discard, Ok, Outcome, Raised, Release, Retry
from aftercommit.events.redact import MAX_ERROR_LENGTH
from aftercommit.events.retry import LONGEST

POLICY = Fixed("3s")
FAILURE = Raised(ValueError("no"))


def after(result, *, attempts=0, policy=POLICY, max_attempts=3):
    return decide(result, attempts=attempts, policy=policy, max_attempts=max_attempts)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


# --- a handler that returns


@pytest.mark.parametrize("value", [Done(), None, 7, "retry", False, RetryAfter, [RetryAfter(5)]], ids=repr)
def test_whatever_a_handler_returns_the_event_is_done(value):
    """TC-135, TC-137."""
    assert after(Ok(value)) == DONE
    assert after(Ok(value), attempts=99, max_attempts=1) == DONE


def test_retry_after_defers_and_counts_nothing():
    """TC-136."""
    assert after(Ok(RetryAfter(30))) == Defer(seconds(30))
    assert after(Ok(RetryAfter(0))) == Defer(seconds(0))
    assert after(Ok(RetryAfter(30)), attempts=99, max_attempts=1, policy=NoRetry()) == Defer(seconds(30))


# --- a handler that raises


def test_a_failure_is_tried_again_while_attempts_remain():
    """TC-129, TC-130, TC-131."""
    assert after(FAILURE, attempts=0, max_attempts=3) == Retry(seconds(3), "ValueError: no", limit=3)
    assert after(FAILURE, attempts=1, max_attempts=3) == Retry(seconds(3), "ValueError: no", limit=3)
    assert after(FAILURE, attempts=2, max_attempts=3) == Dead("ValueError: no")
    assert after(FAILURE, attempts=1, max_attempts=2) == Dead("ValueError: no")
    assert after(FAILURE, attempts=0, max_attempts=1) == Dead("ValueError: no")


def test_the_delay_is_that_of_the_failures_so_far():
    policy = Exponential("1s", "1m")

    assert [after(FAILURE, attempts=n, policy=policy, max_attempts=9).delay for n in range(4)] == [
        seconds(1),
        seconds(2),
        seconds(4),
        seconds(8),
    ]


def test_the_limit_of_a_policy_goes_before_that_of_the_outbox():
    assert after(FAILURE, attempts=1, policy=Fixed("1s", max_attempts=2), max_attempts=10) == Dead("ValueError: no")
    assert isinstance(after(FAILURE, attempts=10, policy=Fixed("1s", max_attempts=20), max_attempts=3), Retry)
    inner = Jittered(Fixed("1s", max_attempts=2), "1s")
    assert after(FAILURE, attempts=1, policy=inner, max_attempts=10) == Dead("ValueError: no")


def test_an_error_that_is_not_worth_another_attempt_is_dead_at_once():
    assert after(FAILURE, policy=Fixed("1s", give_up_on=ValueError)) == Dead("ValueError: no")
    assert after(FAILURE, policy=Fixed("1s", retry_on=OSError)) == Dead("ValueError: no")
    assert after(FAILURE, policy=NoRetry()) == Dead("ValueError: no")
    assert isinstance(after(Raised(OSError()), policy=Fixed("1s", retry_on=OSError)), Retry)


def test_retry_after_error_sets_the_delay_and_counts():
    """TC-138, TC-139."""
    failure = Raised(RetryAfterError("5m", "later"))

    assert after(failure, attempts=0, max_attempts=3) == Retry(seconds(300), "RetryAfterError: [AC060] later", limit=3)
    assert after(failure, attempts=1, max_attempts=2) == Dead("RetryAfterError: [AC060] later")
    assert after(Raised(RetryAfterError(0))).delay == seconds(0)


@pytest.mark.parametrize("delay", [timedelta.max, "36500d"], ids=str)
def test_no_handler_can_put_an_event_off_for_longer_than_a_year(delay):
    """A time beyond what the database can hold would keep the outcome, and others with it, from being written."""
    assert after(Ok(RetryAfter(delay))) == Defer(LONGEST)
    assert after(Raised(RetryAfterError(delay))).delay == LONGEST


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), StopIteration()], ids=repr)
def test_an_error_of_any_kind_is_a_failed_attempt(error):
    """TC-480."""
    assert isinstance(after(Raised(error)), Retry)
    assert isinstance(after(Raised(error), attempts=2), Dead)


@pytest.mark.parametrize("error", [UnroutableEvent("nobody", fix="x"), UndecodableRow("torn", fix="x")], ids=repr)
def test_what_no_handler_was_called_for_is_dead_uncounted(error):
    outcome = after(Raised(error), max_attempts=10)

    assert isinstance(outcome, Dead)
    assert not outcome.counted
    assert error.message in outcome.error


def test_an_interrupted_handler_gives_its_event_back():
    """close() cancelled it: neither done nor failed."""
    given_back = Release(was_started=True)
    assert after(Raised(ValueError(), interrupted=True)) == given_back
    assert after(Raised(ValueError(), interrupted=True), attempts=99, policy=NoRetry()) == given_back


def test_the_text_of_an_error_is_fit_to_be_stored():
    """F75."""
    outcome = after(Raised(ValueError("redis://u:s3cr3t@h \x00\ud800" + "x" * 5_000_000)))

    assert outcome.error.startswith("ValueError: redis://u:***@h \\x00\\ud800xxx")
    assert len(outcome.error) == MAX_ERROR_LENGTH


# --- a policy of the user's own that misbehaves


def own_policy(**members):
    defaults = {"delay": lambda self, attempts: seconds(1), "should_retry": lambda self, error: True}
    return type("Own", (), defaults | members)()


def fails(self, *_):
    raise ZeroDivisionError("in the policy")


@pytest.mark.parametrize(
    "members",
    [
        {"delay": fails},
        {"delay": lambda self, attempts: None},
        {"delay": lambda self, attempts: seconds(-1)},
        {"delay": lambda self, attempts: timedelta.max},
        {"should_retry": fails},
        {"max_attempts": "3"},
        {"max_attempts": 0},
        {"max_attempts": property(fails)},
        {"delay": fails, "should_retry": fails, "max_attempts": property(fails)},
    ],
    ids="+".join,
)
def test_a_policy_that_fails_costs_no_event(members):
    """Whatever it does, the event is tried again, and no more often than the outbox allows."""
    policy = own_policy(**members)

    outcome = after(FAILURE, policy=policy)

    assert isinstance(outcome, Retry)
    assert timedelta(0) <= outcome.delay <= LONGEST
    assert after(FAILURE, attempts=2, policy=policy) == Dead("ValueError: no")


# --- an event that nobody here takes


@pytest.mark.parametrize(
    ("age", "grace", "waits"),
    [
        (0, 0, False),
        (5, 0, False),
        (-5, 0, False),  # the database's clock went back
        (0, 600, True),
        (-5, 600, True),
        (599, 600, True),
        (600, 600, False),
        (0, None, True),
        (10**9, None, True),
    ],
)
def test_an_event_without_a_listener_waits_for_its_grace_and_no_longer(age, grace, waits):
    error = UnroutableEvent("nobody takes A/B", fix="register one")

    outcome = decide_unroutable(
        age=seconds(age), grace=None if grace is None else seconds(grace), again=seconds(1), error=error
    )

    if waits:
        assert outcome == Defer(seconds(1))
    else:
        assert isinstance(outcome, Dead)
        assert not outcome.counted
        assert "nobody takes A/B" in outcome.error


# --- for any result


errors = st.sampled_from([ValueError("x"), OSError(), SystemExit(), RetryAfterError(5), UnroutableEvent("n", fix="f")])
results = st.builds(Ok, st.none() | st.builds(RetryAfter, st.integers(0, 10**9))) | st.builds(
    Raised, errors, st.booleans()
)
policies = st.sampled_from(
    [POLICY, NoRetry(), Fixed("1s", max_attempts=2), Exponential("1s", "1h", retry_on=OSError), own_policy(delay=fails)]
)


@settings(deadline=None)
@given(results, st.integers(0, 100), policies, st.integers(1, 100))
def test_every_delivery_has_one_outcome_within_the_limits(result, attempts, policy, max_attempts):
    outcome = decide(result, attempts=attempts, policy=policy, max_attempts=max_attempts)

    assert isinstance(outcome, get_args(Outcome))
    match outcome:
        case Retry(delay):
            assert attempts + 1 < (getattr(policy, "max_attempts", None) or max_attempts)
            assert timedelta(0) <= delay <= LONGEST
        case Defer(delay):
            assert timedelta(0) <= delay <= LONGEST
    assert isinstance(outcome, Retry | Dead) == (isinstance(result, Raised) and not result.interrupted)


# --- what a handler may raise on purpose


def test_a_discarded_event_is_done_whatever_its_policy():
    assert after(Raised(Discard("seen before"))) == DONE
    assert after(Raised(Discard("seen before")), attempts=99, max_attempts=1, policy=NoRetry()) == DONE


def test_a_dead_letter_is_dead_at_its_first_attempt():
    assert after(Raised(DeadLetter("needs a human"))) == Dead("DeadLetter: [AC062] needs a human")


def test_what_cannot_be_decoded_is_dead_and_nobody_was_called():
    outcome = after(Raised(UndecodablePayload("is no OrderPlaced")))
    assert isinstance(outcome, Dead)
    assert not outcome.counted


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no"), True),
        (DeadLetter("no"), False),
        (UndecodablePayload("no"), False),
        (UnroutableEvent("no"), False),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_fallback_is_for_calls_that_failed(error, expected):
    assert falls_back(error, after(Raised(error), policy=NoRetry())) is expected


def test_a_fallback_is_not_for_what_is_tried_again():
    assert not falls_back(FAILURE.error, after(FAILURE))


@given(st.text(max_size=5000), st.text(max_size=5000))
def test_both_errors_are_kept_however_long_they_are(first, second):
    text = both_failed(ValueError(first), LookupError(second)).error
    assert len(text) <= MAX_ERROR_LENGTH
    assert text.startswith("ValueError")
    assert "; the fallback failed too: LookupError" in text
