"""Retry policies: how long to wait after the n-th failed attempt, and which errors are worth another."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, Unpack, runtime_checkable
from weakref import WeakSet

from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration, text_of
from aftercommit.events.log import Log
from aftercommit.events.retry_rules import (
    LONGEST,
    RetryRules,
    RuleOptions,
    allows,
    at_most_longest,
    factor_of,
    fill,
    range_of,
    wait_of,
)

_NOTHING = timedelta(0)
_logger = Log("aftercommit.retry")


def uniform() -> float:
    """Evenly from 0 to 1."""
    from random import random  # noqa: PLC0415  (most programs never get as far as a retry)

    return random()


@runtime_checkable
class RetryPolicy(Protocol):
    """What an outbox asks after a failure. An attribute `max_attempts` may set a limit of the policy's own."""

    def delay(self, attempts: int) -> timedelta:
        """How long to wait when `attempts` deliveries have failed."""

    def should_retry(self, error: BaseException) -> bool:
        """Whether this error is worth another attempt; if not, the event is dead at once."""


class Exponential(RetryRules):
    """Waits `initial`, then `multiplier` times as long each time, up to `maximum`.

    >>> Exponential(initial="1s", maximum="1m", max_attempts=5).delay(3)
    datetime.timedelta(seconds=4)
    """

    _own = __slots__ = ("initial", "maximum", "multiplier")

    initial: timedelta
    maximum: timedelta
    multiplier: float

    def __init__(
        self,
        initial: Duration = "1s",
        maximum: Duration = "60s",
        multiplier: float = 2,
        **rules: Unpack[RuleOptions],
    ) -> None:
        RetryRules.__init__(self, **rules)
        first, most = range_of(initial, maximum, name="initial")
        fill(self, initial=first, maximum=most, multiplier=factor_of(multiplier))

    def delay(self, attempts: int) -> timedelta:
        return _grown(self.initial, self.maximum, self.multiplier, attempts=attempts)


class ExponentialJitter(RetryRules):
    """Waits `base`, doubled each time up to `maximum`, times a random 0.5 to 1.5, and never more than `maximum`.

    The default of an outbox: events that failed together do not come back together.

    >>> ExponentialJitter(base="1s", random=lambda: 0.5).delay(3)
    datetime.timedelta(seconds=4)
    """

    _own = ("base", "maximum")
    __slots__ = (*_own, "random")

    base: timedelta
    maximum: timedelta
    random: Callable[[], float]

    def __init__(
        self,
        base: Duration = "200ms",
        maximum: Duration = "60s",
        *,
        random: Callable[[], float] = uniform,
        **rules: Unpack[RuleOptions],
    ) -> None:
        RetryRules.__init__(self, **rules)
        first, most = range_of(base, maximum, name="base")
        fill(self, base=first, maximum=most, random=random)

    def delay(self, attempts: int) -> timedelta:
        grown = _grown(self.base, self.maximum, 2, attempts=attempts)
        return min(grown * (0.5 + self.random()), self.maximum)


class Fixed(RetryRules):
    """Waits the same time after each failure.

    >>> Fixed("3s").delay(10)
    datetime.timedelta(seconds=3)
    """

    _own = __slots__ = ("wait",)

    #: The constructor says `delay`, which is the name of the method here.
    wait: timedelta

    def __init__(self, delay: Duration = "5s", **rules: Unpack[RuleOptions]) -> None:
        RetryRules.__init__(self, **rules)
        fill(self, wait=wait_of(delay, name="delay"))

    def delay(self, attempts: int) -> timedelta:
        return self.wait if attempts > 0 else _NOTHING


class Linear(RetryRules):
    """Waits `initial`, then `increment` longer each time, up to `maximum`.

    >>> Linear(initial="1s", increment="2s", maximum="7s").delay(3)
    datetime.timedelta(seconds=5)
    """

    _own = __slots__ = ("initial", "increment", "maximum")

    initial: timedelta
    increment: timedelta
    maximum: timedelta

    def __init__(
        self,
        initial: Duration = "1s",
        increment: Duration = "1s",
        maximum: Duration = "60s",
        **rules: Unpack[RuleOptions],
    ) -> None:
        RetryRules.__init__(self, **rules)
        first, most = range_of(initial, maximum, name="initial")
        fill(self, initial=first, increment=wait_of(increment, name="increment"), maximum=most)

    def delay(self, attempts: int) -> timedelta:
        if attempts <= 0:
            return _NOTHING
        # Compared before it is multiplied, because a timedelta overflows.
        if attempts - 1 >= (self.maximum - self.initial) / self.increment:
            return self.maximum
        return self.initial + self.increment * (attempts - 1)


class Jittered(RetryRules):
    """Spreads another policy's waits by up to `jitter` either way, never below zero.

    The other one is `Exponential()` unless given; the limit and the rules are its own, unless given here.

    >>> Jittered(Fixed("5s"), jitter="2s", random=lambda: 0.0).delay(1)
    datetime.timedelta(seconds=3)
    """

    _own = ("policy", "jitter")
    __slots__ = (*_own, "random")

    policy: RetryPolicy
    jitter: timedelta
    random: Callable[[], float]

    def __init__(
        self,
        policy: RetryPolicy | None = None,
        jitter: Duration = "500ms",
        *,
        random: Callable[[], float] = uniform,
        **rules: Unpack[RuleOptions],
    ) -> None:
        policy = Exponential() if policy is None else policy
        if not is_policy(policy):
            raise InvalidOption(
                f"policy={policy!r} is not a retry policy.",
                fix="Pass an object with delay(attempts) and should_retry(error), such as Fixed('5s').",
            )
        if rules.get("max_attempts") is None:
            rules["max_attempts"] = getattr(policy, "max_attempts", None)
        RetryRules.__init__(self, **rules)
        spread = at_most_longest(duration(jitter, name="jitter"), name="jitter")
        fill(self, policy=policy, jitter=spread, random=random)

    def delay(self, attempts: int) -> timedelta:
        if attempts <= 0:
            return _NOTHING
        offset = self.jitter * (2 * self.random() - 1)
        return max(delay_of(self.policy, attempts) + offset, _NOTHING)

    def should_retry(self, error: BaseException) -> bool:
        """As the other policy decides; a rule given here takes the place of its namesake there."""
        if not self.retry_on and not self.give_up_on:
            return self.policy.should_retry(error)
        return allows(
            error,
            retry_on=self.retry_on or getattr(self.policy, "retry_on", ()),
            give_up_on=self.give_up_on or getattr(self.policy, "give_up_on", ()),
        )


class NoRetry(RetryRules):
    """Gives up at the first failure, whatever the error.

    >>> NoRetry().should_retry(TimeoutError())
    False
    """

    __slots__ = ()

    def delay(self, attempts: int) -> timedelta:
        return _NOTHING

    def should_retry(self, error: BaseException) -> bool:
        return False


def is_policy(value: object) -> bool:
    """A class has the methods too, and would fail only when the first event does."""
    return not isinstance(value, type) and isinstance(value, RetryPolicy)


def delay_of(policy: RetryPolicy, attempts: int) -> timedelta:
    """The policy's delay, between zero and `LONGEST`; the default policy's when this one fails to give a sound one."""
    try:
        wait = policy.delay(attempts)
    except Exception as error:  # user code, called where nothing may break: a lost delay is a lost event
        return _instead(policy, attempts, problem=f"raised {type(error).__name__}", error=error)
    if not isinstance(wait, timedelta):
        return _instead(policy, attempts, problem=f"returned {type(wait).__name__}, not timedelta")
    if wait < _NOTHING:
        return _instead(policy, attempts, problem=f"returned the negative {text_of(wait)}")
    return min(wait, LONGEST)


def should_retry(policy: RetryPolicy, error: BaseException) -> bool:
    """The policy's word on this error; a policy that fails to give one lets the event try again."""
    try:
        return bool(policy.should_retry(error))
    except Exception as failure:
        _report(policy, f"should_retry() raised {type(failure).__name__}; the event is retried", failure)
        return True


def limit_of(policy: RetryPolicy, max_attempts: int) -> int:
    """The policy's own limit of attempts, else the outbox's; a policy with a senseless one has none."""
    try:
        limit = getattr(policy, "max_attempts", None)
    except Exception as failure:
        _report(policy, f"max_attempts raised {type(failure).__name__}; the outbox's is used", failure)
        return max_attempts
    if limit is None:
        return max_attempts
    if isinstance(limit, bool) or not isinstance(limit, int) or limit <= 0:
        _report(policy, f"max_attempts is {type(limit).__name__}, no number above 0; the outbox's is used", None)
        return max_attempts
    return limit


def _instead(policy: RetryPolicy, attempts: int, *, problem: str, error: Exception | None = None) -> timedelta:
    _report(policy, f"delay({attempts}) {problem}; the default policy is used", error)
    return DEFAULT_POLICY.delay(attempts)


def _report(policy: RetryPolicy, problem: str, error: Exception | None) -> None:
    if type(policy) not in _reported:
        _reported.add(type(policy))
        _logger.warning("%s.%s. Said once per class.", type(policy).__qualname__, problem, error=error)


def _grown(initial: timedelta, maximum: timedelta, multiplier: float, *, attempts: int) -> timedelta:
    if attempts <= 0:
        return _NOTHING
    # Compared as logarithms before it is raised to a power, because 2 ** 1_000_000_000 would take all memory.
    if attempts - 1 >= math.log(maximum / initial) / math.log(multiplier):
        return maximum
    return min(initial * multiplier ** (attempts - 1), maximum)


#: The policy of an outbox that was given none.
DEFAULT_POLICY = ExponentialJitter()
_reported: WeakSet[type] = WeakSet()
