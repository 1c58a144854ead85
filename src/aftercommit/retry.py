"""Retry policies: how long to wait after the n-th failed attempt, and which errors are worth another."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import timedelta
from random import random as uniform
from typing import Protocol, TypeAlias, runtime_checkable
from weakref import WeakSet

from aftercommit.durations import Duration, duration, text_of
from aftercommit.errors import InvalidOption

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]

#: No event waits longer for its retry. Far above any sensible wait, far below what a database's time can hold.
LONGEST = timedelta(days=365)

_NOTHING = timedelta(0)
_logger = logging.getLogger("aftercommit.retry")


@runtime_checkable
class RetryPolicy(Protocol):
    """What an outbox asks after a failure. An attribute `max_attempts` may set a limit of the policy's own."""

    def delay(self, attempts: int) -> timedelta:
        """How long to wait when `attempts` deliveries have failed."""
        ...

    def should_retry(self, error: BaseException) -> bool:
        """Whether this error is worth another attempt; if not, the event is dead at once."""
        ...


@dataclass(frozen=True, slots=True, init=False, repr=False)
class _Rules:
    """What all policies share: the limit of attempts (None: the outbox's) and the errors to retry or give up on."""

    max_attempts: int | None
    retry_on: tuple[type[BaseException], ...]
    give_up_on: tuple[type[BaseException], ...]

    def __init__(self, *, max_attempts: int | None = None, retry_on: Errors = (), give_up_on: Errors = ()) -> None:
        _fill(
            self,
            max_attempts=_limit(max_attempts),
            retry_on=_error_classes(retry_on, name="retry_on"),
            give_up_on=_error_classes(give_up_on, name="give_up_on"),
        )

    def should_retry(self, error: BaseException) -> bool:
        """Whether the rules allow another attempt; they look at causes and into exception groups too."""
        return _allows(error, retry_on=self.retry_on, give_up_on=self.give_up_on)

    def __repr__(self) -> str:
        rules, own = fields(self)[:3], fields(self)[3:]
        shown = [(each.metadata.get("shown_as", each.name), getattr(self, each.name)) for each in own if each.repr]
        shown += [(each.name, getattr(self, each.name)) for each in rules if getattr(self, each.name)]
        return f"{type(self).__name__}({', '.join(f'{name}={_text(value)}' for name, value in shown)})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Exponential(_Rules):
    """Waits `initial`, then `multiplier` times as long each time, up to `maximum`.

    >>> Exponential(initial="1s", maximum="1m", max_attempts=5).delay(3)
    datetime.timedelta(seconds=4)
    """

    initial: timedelta
    maximum: timedelta
    multiplier: float

    def __init__(
        self,
        initial: Duration = "200ms",
        maximum: Duration = "60s",
        multiplier: float = 2,
        *,
        max_attempts: int | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
    ) -> None:
        _Rules.__init__(self, max_attempts=max_attempts, retry_on=retry_on, give_up_on=give_up_on)
        first, most = _range(initial, maximum, name="initial")
        _fill(self, initial=first, maximum=most, multiplier=_factor(multiplier))

    def delay(self, attempts: int) -> timedelta:
        return _grown(self.initial, self.maximum, self.multiplier, attempts=attempts)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class ExponentialJitter(_Rules):
    """Waits `base`, doubled each time up to `maximum`, times a random 0.5 to 1.5, and never more than `maximum`.

    The default of an outbox: events that failed together do not come back together.

    >>> ExponentialJitter(base="1s", random=lambda: 0.5).delay(3)
    datetime.timedelta(seconds=4)
    """

    base: timedelta
    maximum: timedelta
    random: Callable[[], float] = field(compare=False, repr=False)

    def __init__(
        self,
        base: Duration = "200ms",
        maximum: Duration = "60s",
        *,
        max_attempts: int | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
        random: Callable[[], float] = uniform,
    ) -> None:
        _Rules.__init__(self, max_attempts=max_attempts, retry_on=retry_on, give_up_on=give_up_on)
        first, most = _range(base, maximum, name="base")
        _fill(self, base=first, maximum=most, random=random)

    def delay(self, attempts: int) -> timedelta:
        grown = _grown(self.base, self.maximum, 2, attempts=attempts)
        return min(grown * (0.5 + self.random()), self.maximum)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Fixed(_Rules):
    """Waits the same time after each failure.

    >>> Fixed("3s").delay(10)
    datetime.timedelta(seconds=3)
    """

    #: The constructor says `delay`, which is the name of the method here.
    wait: timedelta = field(metadata={"shown_as": "delay"})

    def __init__(
        self,
        delay: Duration,
        *,
        max_attempts: int | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
    ) -> None:
        _Rules.__init__(self, max_attempts=max_attempts, retry_on=retry_on, give_up_on=give_up_on)
        _fill(self, wait=_wait(delay, name="delay"))

    def delay(self, attempts: int) -> timedelta:
        return self.wait if attempts > 0 else _NOTHING


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Linear(_Rules):
    """Waits `initial`, then `increment` longer each time, up to `maximum`.

    >>> Linear(initial="1s", increment="2s", maximum="7s").delay(3)
    datetime.timedelta(seconds=5)
    """

    initial: timedelta
    increment: timedelta
    maximum: timedelta

    def __init__(
        self,
        initial: Duration,
        increment: Duration,
        maximum: Duration,
        *,
        max_attempts: int | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
    ) -> None:
        _Rules.__init__(self, max_attempts=max_attempts, retry_on=retry_on, give_up_on=give_up_on)
        first, most = _range(initial, maximum, name="initial")
        _fill(self, initial=first, increment=_wait(increment, name="increment"), maximum=most)

    def delay(self, attempts: int) -> timedelta:
        if attempts <= 0:
            return _NOTHING
        # Compared before it is multiplied, because a timedelta overflows.
        if attempts - 1 >= (self.maximum - self.initial) / self.increment:
            return self.maximum
        return self.initial + self.increment * (attempts - 1)


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Jittered(_Rules):
    """Spreads another policy's waits by up to `jitter` either way, never below zero.

    The limit and the rules are those of the other policy, unless given here.

    >>> Jittered(Fixed("5s"), jitter="2s", random=lambda: 0.0).delay(1)
    datetime.timedelta(seconds=3)
    """

    policy: RetryPolicy
    jitter: timedelta
    random: Callable[[], float] = field(compare=False, repr=False)

    def __init__(
        self,
        policy: RetryPolicy,
        jitter: Duration,
        *,
        max_attempts: int | None = None,
        retry_on: Errors = (),
        give_up_on: Errors = (),
        random: Callable[[], float] = uniform,
    ) -> None:
        inner = _policy(policy)
        limit = getattr(inner, "max_attempts", None) if max_attempts is None else max_attempts
        _Rules.__init__(self, max_attempts=limit, retry_on=retry_on, give_up_on=give_up_on)
        spread = _at_most_longest(duration(jitter, name="jitter"), name="jitter")
        _fill(self, policy=inner, jitter=spread, random=random)

    def delay(self, attempts: int) -> timedelta:
        if attempts <= 0:
            return _NOTHING
        offset = self.jitter * (2 * self.random() - 1)
        return max(delay_of(self.policy, attempts) + offset, _NOTHING)

    def should_retry(self, error: BaseException) -> bool:
        """As the other policy decides; a rule given here takes the place of its namesake there."""
        if not self.retry_on and not self.give_up_on:
            return self.policy.should_retry(error)
        return _allows(
            error,
            retry_on=self.retry_on or getattr(self.policy, "retry_on", ()),
            give_up_on=self.give_up_on or getattr(self.policy, "give_up_on", ()),
        )


@dataclass(frozen=True, slots=True, init=False, repr=False)
class NoRetry(_Rules):
    """Gives up at the first failure, whatever the error.

    >>> NoRetry().should_retry(TimeoutError())
    False
    """

    def delay(self, attempts: int) -> timedelta:
        return _NOTHING

    def should_retry(self, error: BaseException) -> bool:
        return False


def default_policy() -> ExponentialJitter:
    """The policy of an outbox that was given none."""
    return _DEFAULT


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


def _instead(policy: RetryPolicy, attempts: int, *, problem: str, error: Exception | None = None) -> timedelta:
    _report(policy, f"delay({attempts}) {problem}; the default policy is used", error)
    return _DEFAULT.delay(attempts)


def _report(policy: RetryPolicy, problem: str, error: Exception | None) -> None:
    if type(policy) not in _reported:
        _reported.add(type(policy))
        _logger.warning("%s.%s. Said once per class.", type(policy).__qualname__, problem, exc_info=error)


def _grown(initial: timedelta, maximum: timedelta, multiplier: float, *, attempts: int) -> timedelta:
    if attempts <= 0:
        return _NOTHING
    # Compared as logarithms before it is raised to a power, because 2 ** 1_000_000_000 would take all memory.
    if attempts - 1 >= math.log(maximum / initial) / math.log(multiplier):
        return maximum
    return min(initial * multiplier ** (attempts - 1), maximum)


def _allows(
    error: BaseException, *, retry_on: tuple[type[BaseException], ...], give_up_on: tuple[type[BaseException], ...]
) -> bool:
    family = list(_family(error))
    if any(isinstance(member, give_up_on) for member in family):
        return False
    return not retry_on or any(isinstance(member, retry_on) for member in family)


def _family(error: BaseException) -> Iterator[BaseException]:
    """The error, its causes, the members of its groups, and theirs; each once, for causes may go in circles."""
    waiting, seen = [error], set[int]()
    while waiting:
        member = waiting.pop()
        if id(member) in seen:
            continue
        seen.add(id(member))
        yield member
        if member.__cause__ is not None:
            waiting.append(member.__cause__)
        if isinstance(member, BaseExceptionGroup):
            waiting.extend(member.exceptions)


def _fill(target: object, /, **values: object) -> None:
    for name, value in values.items():
        object.__setattr__(target, name, value)  # frozen for everybody else


def _range(initial: Duration, maximum: Duration, *, name: str) -> tuple[timedelta, timedelta]:
    first, most = _wait(initial, name=name), _wait(maximum, name="maximum")
    if most < first:
        raise InvalidOption(
            f"maximum={maximum!r} is less than {name}={initial!r}.", fix=f"Raise maximum or lower {name}."
        )
    return first, most


def _wait(value: Duration, *, name: str) -> timedelta:
    return _at_most_longest(duration(value, name=name, positive=True), name=name)


def _at_most_longest(value: timedelta, *, name: str) -> timedelta:
    if value > LONGEST:
        raise InvalidOption(f"{name}={text_of(value)} is more than {LONGEST.days} days.", fix=f"Lower {name}.")
    return value


def _factor(multiplier: object) -> float:
    if isinstance(multiplier, bool) or not isinstance(multiplier, int | float) or not 1 < multiplier < math.inf:
        raise InvalidOption(
            f"multiplier={multiplier!r} does not make the delay grow.",
            fix="Pass a number above 1, or use Fixed for a delay that stays the same.",
        )
    return multiplier


def _limit(max_attempts: object) -> int | None:
    if max_attempts is None:
        return None
    if isinstance(max_attempts, bool) or not isinstance(max_attempts, int) or max_attempts <= 0:
        raise InvalidOption(
            f"max_attempts={max_attempts!r} is not a number of attempts.",
            fix="Pass 1 or more, or None for the outbox's; NoRetry() gives up at the first failure.",
        )
    return max_attempts


def _error_classes(errors: object, *, name: str) -> tuple[type[BaseException], ...]:
    classes = errors if isinstance(errors, tuple) else (errors,)
    for each in classes:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise InvalidOption(
                f"{name} has {each!r}, which is not an exception class.",
                fix=f"Pass a class or a tuple of classes, as in {name}=(TimeoutError, ConnectionError).",
            )
    return classes


def _policy(policy: RetryPolicy) -> RetryPolicy:
    # A class has the methods too, and would fail only when the first event does.
    if isinstance(policy, type) or not isinstance(policy, RetryPolicy):
        raise InvalidOption(
            f"policy={policy!r} is not a retry policy.",
            fix="Pass an object with delay(attempts) and should_retry(error), such as Fixed('5s').",
        )
    return policy


def _text(value: object) -> str:
    match value:
        case timedelta():
            return text_of(value)
        case (type() as only,):
            return only.__name__
        case tuple():
            return f"({', '.join(each.__name__ for each in value)})"
        case _:
            return repr(value)


_DEFAULT = ExponentialJitter()
_reported: WeakSet[type] = WeakSet()
