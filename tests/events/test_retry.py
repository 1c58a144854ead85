"""Retry policies give the delays and rules of the reference cases (TC numbers), and no odd value breaks them."""

from __future__ import annotations

import copy
import logging
import pickle
from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.errors import InvalidOption
from aftercommit.events.retry import (
    DEFAULT_POLICY,
    LONGEST,
    Exponential,
    ExponentialJitter,
    Fixed,
    Jittered,
    Linear,
    NoRetry,
    RetryPolicy,
    delay_of,
    limit_of,
    should_retry,
)

ALMOST_ONE = 1 - 2**-53
POLICIES = [
    Exponential(initial="1s", maximum="60s"),
    ExponentialJitter(),
    Fixed("3s"),
    Linear(initial="1s", increment="2s", maximum="7s"),
    Jittered(Fixed("5s"), "2s"),
    NoRetry(),
]
every_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
waits = st.timedeltas(timedelta(microseconds=1), LONGEST)
any_attempts = st.integers(0, 10**12)


def seconds(policy: RetryPolicy, *attempts: int) -> list[float]:
    return [policy.delay(each).total_seconds() for each in attempts]


def ms(number: float) -> timedelta:
    return timedelta(milliseconds=number)


# --- delays


@pytest.mark.parametrize(
    ("attempts", "base"),
    [(1, 100), (2, 200), (3, 400)],
)
def test_exponential_jitter_doubles_and_spreads_by_half(attempts, base):  # TC-162, TC-163
    low = ExponentialJitter(ms(100), ms(100_000), random=lambda: 0.0)
    high = ExponentialJitter(ms(100), ms(100_000), random=lambda: ALMOST_ONE)
    real = ExponentialJitter(ms(100), ms(100_000))

    assert low.delay(attempts) == ms(base * 0.5)
    assert high.delay(attempts) == ms(base * 1.5)
    assert all(ms(base * 0.5) <= real.delay(attempts) <= ms(base * 1.5) for _ in range(100))


def test_exponential_jitter_never_exceeds_its_maximum():  # TC-164
    assert ExponentialJitter(ms(100), ms(500), random=lambda: ALMOST_ONE).delay(10) == ms(500)
    assert ExponentialJitter(ms(100), ms(500), random=lambda: 0.0).delay(10) == ms(250)


def test_exponential_jitter_varies():  # TC-165
    policy = ExponentialJitter(ms(1000), ms(100_000))

    delays = {policy.delay(1) for _ in range(20)}

    assert len(delays) > 1
    assert all(ms(500) <= each <= ms(1500) for each in delays)


@pytest.mark.parametrize("attempts", [31, 32, 50, 100, 10**9, 10**12, 10**400])
def test_many_attempts_do_not_overflow(attempts):  # TC-166
    assert ms(30_000) <= ExponentialJitter(ms(100), ms(60_000)).delay(attempts) <= ms(60_000)
    assert Exponential(ms(100), ms(60_000)).delay(attempts) == ms(60_000)
    assert Exponential(ms(100), ms(60_000), 1.5).delay(attempts) == ms(60_000)
    assert Linear("1s", "10s", "60s").delay(attempts) == timedelta(seconds=60)
    assert Fixed("3s").delay(attempts) == timedelta(seconds=3)


@pytest.mark.parametrize("attempts", [0, -1, -(10**12)])
@every_policy
def test_without_a_failed_attempt_there_is_no_wait(policy, attempts):  # TC-168
    assert policy.delay(attempts) == timedelta(0)


def test_the_reference_default_grows_from_two_seconds_to_sixty():  # TC-385
    assert seconds(Exponential("2s", "60s"), 1, 2, 3, 4, 5, 6) == [2, 4, 8, 16, 32, 60]


def test_exponential_multiplies_up_to_its_maximum():  # TC-386
    assert seconds(Exponential("1s", "9s", 2), 1, 2, 3, 4, 5) == [1, 2, 4, 8, 9]
    assert seconds(Exponential("1s", "8s", 2), 3, 4, 5) == [4, 8, 8]
    assert seconds(Exponential("1s", "60s", multiplier=1.5), 1, 2, 3) == [1, 1.5, 2.25]
    assert seconds(Exponential("1s", "1s"), 1, 2) == [1, 1]
    assert seconds(Exponential("1s", "60s", multiplier=10**400), 1, 2) == [1, 60]


def test_linear_adds_up_to_its_maximum():  # TC-387
    assert seconds(Linear("1s", "2s", "7s"), 1, 2, 3, 4, 5) == [1, 3, 5, 7, 7]
    assert seconds(Linear("1s", "4s", "7s"), 1, 2, 3) == [1, 5, 7]


def test_fixed_stays_the_same():  # TC-388
    assert seconds(Fixed("3s"), 1, 2, 10) == [3, 3, 3]


@pytest.mark.parametrize(
    ("inner", "jitter", "low", "high"),
    [
        (Fixed("5s"), "2s", 3, 7),
        (Linear("1s", "2s", "7s"), "500ms", 0.5, 1.5),
        (Exponential("1s", "60s"), "500ms", 0.5, 1.5),
        (Fixed("5s"), 0, 5, 5),
        (Fixed("1s"), "3s", 0, 4),
    ],
)
def test_jitter_spreads_another_policy_both_ways(inner, jitter, low, high):  # TC-389
    real = Jittered(inner, jitter)

    assert seconds(Jittered(inner, jitter, random=lambda: 0.0), 1) == [low]
    assert seconds(Jittered(inner, jitter, random=lambda: ALMOST_ONE), 1) == [high]
    assert all(low <= each <= high for each in seconds(real, *[1] * 100))


def test_no_retry_does_not_wait():
    assert NoRetry().delay(1) == timedelta(0)


@given(waits, waits, any_attempts, st.floats(1, 1e6, exclude_min=True))
def test_exponential_is_bounded_and_never_shrinks(one, other, attempts, multiplier):
    initial, maximum = sorted([one, other])
    policy = Exponential(initial, maximum, multiplier)

    assert timedelta(0) <= policy.delay(attempts) <= policy.delay(attempts + 1) <= maximum
    assert attempts == 0 or policy.delay(attempts) >= initial


@given(waits, waits, any_attempts, st.floats(0, 1, exclude_max=True))
def test_exponential_jitter_is_bounded(one, other, attempts, random):
    base, maximum = sorted([one, other])

    assert timedelta(0) <= ExponentialJitter(base, maximum, random=lambda: random).delay(attempts) <= maximum


@given(waits, waits, waits, any_attempts)
def test_linear_is_bounded_and_never_shrinks(one, other, increment, attempts):
    initial, maximum = sorted([one, other])
    policy = Linear(initial, increment, maximum)

    assert timedelta(0) <= policy.delay(attempts) <= policy.delay(attempts + 1) <= maximum


@given(waits, waits, any_attempts, st.floats(0, 1, exclude_max=True))
def test_jittered_is_bounded(wait, jitter, attempts, random):
    delay = Jittered(Fixed(wait), jitter, random=lambda: random).delay(attempts)

    assert timedelta(0) <= delay <= wait + jitter


# --- rules


class Wrapper(Exception):
    pass


def caused_by(cause: BaseException) -> BaseException:
    error = Wrapper("outer")
    error.__cause__ = cause
    return error


def test_without_rules_everything_is_retried():  # TC-392
    assert all(Fixed("1s").should_retry(error) for error in [ValueError(), TimeoutError(), KeyboardInterrupt()])


def test_retry_on_takes_the_error_its_subclasses_and_its_causes_only():  # TC-393
    policy = Fixed("1s", retry_on=OSError)

    assert policy.should_retry(OSError())
    assert policy.should_retry(TimeoutError())
    assert policy.should_retry(caused_by(caused_by(OSError())))
    assert not policy.should_retry(ValueError())
    assert not policy.should_retry(caused_by(ValueError()))


def test_give_up_on_refuses_the_error_its_subclasses_and_its_causes_only():  # TC-394
    policy = Fixed("1s", give_up_on=(LookupError,))

    assert not policy.should_retry(LookupError())
    assert not policy.should_retry(KeyError())
    assert not policy.should_retry(caused_by(caused_by(KeyError())))
    assert policy.should_retry(ValueError())
    assert policy.should_retry(caused_by(ValueError()))


def test_give_up_on_wins():  # TC-395, TC-397
    policy = Fixed("1s", retry_on=(Wrapper, OSError), give_up_on=ValueError)

    assert not policy.should_retry(caused_by(ValueError()))
    assert policy.should_retry(caused_by(KeyError()))
    assert policy.should_retry(OSError())
    assert not policy.should_retry(KeyError())


def test_each_class_of_a_tuple_counts():  # TC-398
    policy = Fixed("1s", retry_on=(OSError, LookupError), give_up_on=(TimeoutError, KeyError))

    answers = [policy.should_retry(error()) for error in (OSError, LookupError, TimeoutError, KeyError)]

    assert answers == [True, True, False, False]


def test_rules_look_into_groups_and_the_causes_of_their_members():
    group = ExceptionGroup("outer", [ValueError(), ExceptionGroup("inner", [caused_by(KeyError())])])

    assert Fixed("1s", retry_on=KeyError).should_retry(group)
    assert Fixed("1s", retry_on=KeyError).should_retry(caused_by(group))
    assert not Fixed("1s", give_up_on=KeyError).should_retry(group)
    assert not Fixed("1s", retry_on=OSError).should_retry(group)
    assert not Fixed("1s", give_up_on=GeneratorExit).should_retry(BaseExceptionGroup("outer", [GeneratorExit()]))


def test_rules_do_not_look_at_the_context():
    error = ValueError()
    error.__context__ = TimeoutError()

    assert not Fixed("1s", retry_on=TimeoutError).should_retry(error)
    assert Fixed("1s", give_up_on=TimeoutError).should_retry(error)


def test_causes_in_a_circle_and_in_a_long_chain_come_to_an_end():
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    circling = ExceptionGroup("circling", [first])
    second.__cause__ = circling
    long: BaseException = OSError()
    for _ in range(10_000):
        long = caused_by(long)

    assert not Fixed("1s", retry_on=TimeoutError).should_retry(first)
    assert not Fixed("1s", retry_on=TimeoutError).should_retry(circling)
    assert Fixed("1s", retry_on=OSError).should_retry(long)


def test_no_retry_never_retries():
    assert not NoRetry(retry_on=ValueError).should_retry(ValueError())
    assert not Jittered(NoRetry(), "1s").should_retry(ValueError())


def test_jittered_takes_limit_and_rules_from_the_other_policy():
    policy = Jittered(Fixed("1s", max_attempts=3, retry_on=OSError, give_up_on=TimeoutError), "1s")

    assert policy.max_attempts == 3
    assert policy.should_retry(OSError())
    assert not policy.should_retry(TimeoutError())
    assert not policy.should_retry(ValueError())


def test_jittered_prefers_what_it_was_given():
    inner = Fixed("1s", max_attempts=3, retry_on=OSError, give_up_on=TimeoutError)
    policy = Jittered(inner, "1s", max_attempts=7, retry_on=(ValueError, TimeoutError))

    assert policy.max_attempts == 7
    assert policy.should_retry(ValueError())
    assert not policy.should_retry(OSError())
    assert not policy.should_retry(TimeoutError())  # the other policy still gives up on it


def test_jittered_wraps_a_policy_of_the_users_own():
    class Own:
        def delay(self, attempts: int) -> timedelta:
            return timedelta(seconds=attempts)

        def should_retry(self, error: BaseException) -> bool:
            return isinstance(error, OSError)

    policy = Jittered(Own(), 0)

    assert policy.max_attempts is None
    assert policy.delay(4) == timedelta(seconds=4)
    assert policy.should_retry(OSError())
    assert not policy.should_retry(ValueError())
    assert not Jittered(Own(), 0, give_up_on=OSError).should_retry(OSError())


# --- construction


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: ExponentialJitter(base=0), "base=0"),  # TC-167
        (lambda: ExponentialJitter(maximum="0s"), "maximum='0s'"),  # TC-167
        (lambda: ExponentialJitter(base="2m", maximum="1m"), "maximum='1m' is less than base='2m'"),
        (lambda: Exponential(0, "60s"), "initial=0"),  # TC-399 from here
        (lambda: Exponential("1s", 0), "maximum=0"),
        (lambda: Exponential("10s", "5s"), "maximum='5s' is less than initial='10s'"),
        (lambda: Exponential("1s", "60s", 1.0), "multiplier=1.0"),
        (lambda: Exponential("1s", "60s", 0.5), "multiplier=0.5"),
        (lambda: Exponential("1s", "60s", -2), "multiplier=-2"),
        (lambda: Exponential("1s", "60s", float("nan")), "multiplier=nan"),
        (lambda: Exponential("1s", "60s", float("inf")), "multiplier=inf"),
        (lambda: Exponential("1s", "60s", True), "multiplier=True"),
        (lambda: Exponential("1s", "60s", "2"), "multiplier='2'"),
        (lambda: Fixed(0), "delay=0"),
        (lambda: Fixed(-1), "delay=-1"),
        (lambda: Fixed("soon"), "delay='soon'"),
        (lambda: Linear("0s", "1s", "60s"), "initial='0s'"),
        (lambda: Linear("1s", 0, "60s"), "increment=0"),
        (lambda: Linear("1s", -1, "60s"), "increment=-1"),
        (lambda: Linear("1s", "1s", 0), "maximum=0"),
        (lambda: Linear("9s", "1s", "7s"), "maximum='7s' is less than initial='9s'"),
        (lambda: Jittered(Fixed("1s"), -1), "jitter=-1"),
        (lambda: Jittered(Fixed, "1s"), "policy=<class"),
        (lambda: Jittered("1s", "1s"), "policy='1s'"),
        (lambda: Fixed("366d"), "delay=31622400s is more than 365 days"),
        (lambda: Jittered(Fixed("1s"), timedelta.max), "is more than 365 days"),
    ],
)
def test_senseless_values_are_refused_with_the_value_and_a_fix(build, said):
    with pytest.raises(InvalidOption) as refused:
        build()

    assert said in refused.value.message
    assert refused.value.fix


@pytest.mark.parametrize("max_attempts", [0, -1, 2.5, "3", True])
def test_a_limit_is_a_number_of_attempts(max_attempts):  # TC-399
    for build in constructors():
        with pytest.raises(InvalidOption, match="max_attempts=") as refused:
            build(max_attempts=max_attempts)
        assert repr(max_attempts) in refused.value.message
        assert "1 or more" in refused.value.fix


@pytest.mark.parametrize("rule", ["retry_on", "give_up_on"])
@pytest.mark.parametrize(
    "errors", ["ValueError", str, (ValueError, str), [ValueError], ValueError(), None, ((OSError,),)]
)
def test_rules_are_exception_classes(rule, errors):  # TC-391
    for build in constructors():
        with pytest.raises(InvalidOption, match=f"{rule} has .* not an exception class") as refused:
            build(**{rule: errors})
        assert rule in refused.value.fix


def constructors():
    yield lambda **rules: Exponential("1s", "60s", **rules)
    yield ExponentialJitter
    yield lambda **rules: Fixed("1s", **rules)
    yield lambda **rules: Linear("1s", "1s", "60s", **rules)
    yield lambda **rules: Jittered(Fixed("1s"), "1s", **rules)
    yield NoRetry


@every_policy
def test_every_policy_is_a_frozen_value(policy):
    assert isinstance(policy, RetryPolicy)
    assert policy.max_attempts is None
    assert copy.copy(policy) == policy == pickle.loads(pickle.dumps(policy))  # noqa: S301 - our own bytes
    assert hash(policy) == hash(copy.copy(policy))
    with pytest.raises(FrozenInstanceError):
        policy.max_attempts = 3
    with pytest.raises(FrozenInstanceError):
        del policy.max_attempts


def test_a_policy_that_is_derived_from_ours_may_keep_what_it_likes():
    class Counting(Fixed):
        def __init__(self):
            super().__init__("1s")
            self.asked = 0

        def delay(self, attempts):
            self.asked += 1
            return super().delay(attempts)

    policy = Counting()
    assert policy.delay(1) == timedelta(seconds=1)
    assert policy.asked == 1
    assert copy.copy(policy).asked == 1
    with pytest.raises(FrozenInstanceError):
        policy.wait = timedelta(0)


def test_equal_settings_make_equal_policies():
    assert Exponential("1s", "1m") == Exponential(initial=1, maximum=timedelta(minutes=1), multiplier=2)
    assert Fixed("1s") != Fixed("1s", max_attempts=2)


@pytest.mark.parametrize(
    ("policy", "shown"),
    [
        (Exponential("1s", "1m"), "Exponential(initial=1s, maximum=60s, multiplier=2)"),
        (ExponentialJitter(), "ExponentialJitter(base=200ms, maximum=60s)"),
        (Fixed("1.5s"), "Fixed(delay=1.5s)"),
        (Linear(1, 2, 7), "Linear(initial=1s, increment=2s, maximum=7s)"),
        (Jittered(Fixed("5s"), "2s"), "Jittered(policy=Fixed(delay=5s), jitter=2s)"),
        (NoRetry(), "NoRetry()"),
        (
            Fixed("1s", max_attempts=5, retry_on=OSError, give_up_on=(TimeoutError, KeyError)),
            "Fixed(delay=1s, max_attempts=5, retry_on=OSError, give_up_on=(TimeoutError, KeyError))",
        ),
    ],
)
def test_a_policy_shows_its_settings(policy, shown):
    assert repr(policy) == shown


def test_the_default_is_that_of_the_specification():
    policy = DEFAULT_POLICY

    assert policy == ExponentialJitter(base="200ms", maximum="60s")
    assert all(ms(100) <= policy.delay(1) <= ms(300) for _ in range(100))
    assert all(timedelta(seconds=30) <= policy.delay(50) <= timedelta(seconds=60) for _ in range(100))


# --- delay_of


def policy_giving(answer: object) -> RetryPolicy:
    class Own:  # a new class each time, because a class is reported once
        def delay(self, attempts: int) -> timedelta:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def should_retry(self, error: BaseException) -> bool:
            return True

    return Own()


def test_delay_of_gives_the_delay_of_the_policy():
    assert delay_of(Fixed("3s"), 2) == timedelta(seconds=3)
    assert delay_of(policy_giving(timedelta(0)), 2) == timedelta(0)


def test_delay_of_never_exceeds_a_year():
    assert delay_of(policy_giving(timedelta.max), 1) == LONGEST == timedelta(days=365)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ZeroDivisionError("no"), "raised ZeroDivisionError"),
        (5, "returned int"),
        (None, "returned NoneType"),
        (timedelta(seconds=-1), "returned the negative -1s"),
    ],
)
def test_delay_of_falls_back_to_the_default_and_says_so_once(answer, said, caplog):
    policy = policy_giving(answer)

    with caplog.at_level(logging.DEBUG, logger="aftercommit.retry"):
        delays = [delay_of(policy, 1) for _ in range(50)]

    assert all(ms(100) <= each <= ms(300) for each in delays)
    assert [(record.name, record.levelname) for record in caplog.records] == [("aftercommit.retry", "WARNING")]
    assert said in caplog.text


def test_jittered_survives_a_broken_policy():
    assert timedelta(0) <= Jittered(policy_giving(ValueError()), "1s").delay(1) <= ms(1300)
    assert Jittered(policy_giving(timedelta.max), "1s").delay(1) <= LONGEST + timedelta(seconds=1)


def test_what_is_logged_of_a_broken_policy_has_no_secrets(caplog):
    delay_of(policy_giving(ValueError("at redis://u:s3cr3t@h")), 1)

    assert "redis://u:***@h" in caplog.text
    assert "s3cr3t" not in caplog.text


# --- should_retry


def policy_saying(answer: object) -> RetryPolicy:
    class Own:  # a new class each time, because a class is reported once
        def delay(self, attempts: int) -> timedelta:
            return timedelta(0)

        def should_retry(self, error: BaseException) -> bool:
            if isinstance(answer, BaseException):
                raise answer
            return answer

    return Own()


@pytest.mark.parametrize(("answer", "word"), [(True, True), (False, False), (1, True), (0, False), (None, False)])
def test_should_retry_gives_the_word_of_the_policy(answer, word):
    assert should_retry(policy_saying(answer), ValueError()) is word


def test_should_retry_asks_about_the_error_itself():
    policy = Fixed("1s", retry_on=OSError)

    assert should_retry(policy, TimeoutError()) is True
    assert should_retry(policy, ValueError()) is False


class Undecided:
    def __bool__(self) -> bool:
        raise RuntimeError("neither")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (ZeroDivisionError("no"), "should_retry() raised ZeroDivisionError; the event is retried"),
        (Undecided(), "should_retry() raised RuntimeError; the event is retried"),
    ],
    ids=["raises", "undecided"],
)
def test_a_policy_that_fails_to_say_lets_the_event_try_again_and_says_so_once(answer, said, caplog):
    policy = policy_saying(answer)

    with caplog.at_level(logging.DEBUG, logger="aftercommit.retry"):
        answers = [should_retry(policy, ValueError()) for _ in range(50)]

    assert answers == [True] * 50
    assert [(record.name, record.levelname) for record in caplog.records] == [("aftercommit.retry", "WARNING")]
    assert said in caplog.text
    assert "Own" in caplog.text


def test_should_retry_does_not_swallow_what_ends_the_program():
    with pytest.raises(KeyboardInterrupt):
        should_retry(policy_saying(KeyboardInterrupt()), ValueError())


# --- limit_of


def policy_with(limit: object) -> RetryPolicy:
    class Own:  # a new class each time, because a class is reported once
        @property
        def max_attempts(self) -> int | None:
            if isinstance(limit, Exception):
                raise limit
            return limit

        def delay(self, attempts: int) -> timedelta:
            return timedelta(0)

        def should_retry(self, error: BaseException) -> bool:
            return True

    return Own()


def test_the_limit_is_the_policys_own_or_the_outboxs():
    assert limit_of(Fixed("1s", max_attempts=3), 10) == 3
    assert limit_of(Fixed("1s", max_attempts=30), 10) == 30
    assert limit_of(Fixed("1s"), 10) == 10
    assert limit_of(policy_saying(True), 10) == 10  # no such attribute
    assert limit_of(policy_with(3), 10) == 3


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        (0, "max_attempts is int"),
        (-1, "max_attempts is int"),
        (True, "max_attempts is bool"),
        ("3", "max_attempts is str"),
        (2.5, "max_attempts is float"),
        (ZeroDivisionError("no"), "max_attempts raised ZeroDivisionError"),
    ],
    ids=repr,
)
def test_a_senseless_limit_of_a_policy_is_not_used_and_said_once(limit, said, caplog):
    policy = policy_with(limit)

    with caplog.at_level(logging.DEBUG, logger="aftercommit.retry"):
        limits = [limit_of(policy, 10) for _ in range(50)]

    assert limits == [10] * 50
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert said in caplog.text


# --- functions as rules


def is_busy(error):
    return "busy" in str(error)


def test_a_function_is_asked_for_the_error_itself():  # TC-396
    policy = Fixed("1s", retry_on=is_busy)

    assert policy.should_retry(OSError("busy"))
    assert not policy.should_retry(OSError("gone"))
    wrapped = RuntimeError("no luck")
    wrapped.__cause__ = OSError("busy")
    assert not policy.should_retry(wrapped)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TimeoutError("slow"), True),
        (OSError("busy"), True),
        (ValueError("busy"), False),
        (OSError("gone for good"), False),
        (KeyError("unknown"), False),
    ],
)
def test_classes_and_functions_go_together(error, expected):  # TC-397, TC-398
    policy = Fixed(
        "1s", retry_on=(TimeoutError, is_busy), give_up_on=(ValueError, lambda error: "for good" in str(error))
    )

    assert policy.should_retry(error) is expected
    assert Jittered(policy, "1s").should_retry(error) is expected


def test_a_function_shows_its_name():
    assert repr(Fixed("1s", retry_on=(TimeoutError, is_busy))) == "Fixed(delay=1s, retry_on=(TimeoutError, is_busy))"
    assert repr(Fixed("1s", give_up_on=is_busy)) == "Fixed(delay=1s, give_up_on=is_busy)"


def test_a_function_that_fails_lets_the_event_try_again(caplog):
    def broken(error):
        raise LookupError

    assert should_retry(Fixed("1s", retry_on=broken), OSError())
