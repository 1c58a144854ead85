"""The rules that all retry policies share: which errors are worth another attempt, and which settings make sense."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from datetime import timedelta
from typing import Any, ClassVar, Final, TypeAlias, TypedDict

import msgspec

from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration, text_of


class Named(msgspec.Struct, frozen=True):
    """A class of errors by its name, bare or with its module, as configuration says it. Nothing is imported by it."""

    name: str

    def __post_init__(self) -> None:
        if not all(part.isidentifier() for part in self.name.split(".")):
            raise InvalidOption(
                f"{self.name!r} is not the name of an exception class.",
                fix='Pass its name, bare or with its module: "TimeoutError", "shop.errors.Fatal".',
            )

    def meets(self, error: BaseException) -> bool:
        """Whether the error is of a class of this name, or of a subclass of one."""
        return any(
            self.name in (kind.__name__, kind.__qualname__, f"{kind.__module__}.{kind.__qualname__}")
            for kind in type(error).__mro__
        )

    def __repr__(self) -> str:
        return repr(self.name)


#: A class of errors, also by its name, or a question about the error itself.
Rule: TypeAlias = type[BaseException] | Named | Callable[[BaseException], bool]
Errors: TypeAlias = Rule | tuple[Rule, ...]

#: No event waits longer for its retry. Far above any sensible wait, far below what a database's time can hold.
LONGEST = timedelta(days=365)


class RuleOptions(TypedDict, total=False):
    """The keywords that every policy takes."""

    #: The limit of attempts; None for the outbox's.
    max_attempts: int | None
    retry_on: Errors
    give_up_on: Errors


#: What every policy has, in the order of its repr.
_OF_ALL: Final = ("max_attempts", "retry_on", "give_up_on")


class RetryRules:
    """What all policies share: the limit of attempts (None: the outbox's) and the errors to retry or give up on. They
    are values: frozen, and equal to what waits as long for the same errors."""

    __slots__ = _OF_ALL

    #: What a policy has of its own, beside what nobody sees or compares.
    _own: ClassVar[tuple[str, ...]] = ()

    max_attempts: int | None
    retry_on: tuple[Rule, ...]
    give_up_on: tuple[Rule, ...]

    def __init__(self, *, max_attempts: int | None = None, retry_on: Errors = (), give_up_on: Errors = ()) -> None:
        fill(
            self,
            max_attempts=_limit(max_attempts),
            retry_on=_rules(retry_on, name="retry_on"),
            give_up_on=_rules(give_up_on, name="give_up_on"),
        )

    def should_retry(self, error: BaseException) -> bool:
        """Whether the rules allow another attempt; they look at causes and into exception groups too."""
        return allows(error, retry_on=self.retry_on, give_up_on=self.give_up_on)

    def __repr__(self) -> str:
        shown = [*self._own, *(name for name in _OF_ALL if getattr(self, name))]
        said = (f"{'delay' if name == 'wait' else name}={_text(getattr(self, name))}" for name in shown)
        return f"{type(self).__name__}({', '.join(said)})"

    def __eq__(self, other: object) -> bool:
        return self._values() == other._values() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())

    def __setattr__(self, name: str, value: object) -> None:
        if name in (*_OF_ALL, *self._own, "random") or not hasattr(self, "__dict__"):
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super().__setattr__(name, value)  # of a class that somebody has derived

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __setstate__(self, state: Any) -> None:
        """To be copied and pickled although it is frozen."""
        fill(self, **{name: value for part in state if part for name, value in part.items()})

    def _values(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in (*_OF_ALL, *self._own))


def allows(error: BaseException, *, retry_on: tuple[Rule, ...], give_up_on: tuple[Rule, ...]) -> bool:
    """Whether an error may be tried again; `give_up_on` wins, and no `retry_on` means every error."""
    family = list(_family(error))
    if any(_meets(rule, error, family) for rule in give_up_on):
        return False
    return not retry_on or any(_meets(rule, error, family) for rule in retry_on)


def _meets(rule: Rule, error: BaseException, family: list[BaseException]) -> bool:
    """A class meets any of the family; a function is asked for the error itself and looks further if it likes."""
    if isinstance(rule, Named):
        return any(map(rule.meets, family))
    if isinstance(rule, type):
        return any(isinstance(member, rule) for member in family)
    return bool(rule(error))


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


def fill(target: object, /, **values: object) -> None:
    """Set the fields of a policy that is being built."""
    for name, value in values.items():
        object.__setattr__(target, name, value)  # frozen for everybody else


def range_of(initial: Duration, maximum: Duration, *, name: str) -> tuple[timedelta, timedelta]:
    """The first and the longest wait; the first is the option `name`."""
    first, most = wait_of(initial, name=name), wait_of(maximum, name="maximum")
    if most < first:
        raise InvalidOption(
            f"maximum={maximum!r} is less than {name}={initial!r}.", fix=f"Raise maximum or lower {name}."
        )
    return first, most


def wait_of(value: Duration, *, name: str) -> timedelta:
    """A wait above zero and up to `LONGEST`."""
    return at_most_longest(duration(value, name=name, positive=True), name=name)


def at_most_longest(value: timedelta, *, name: str) -> timedelta:
    if value > LONGEST:
        raise InvalidOption(f"{name}={text_of(value)} is more than {LONGEST.days} days.", fix=f"Lower {name}.")
    return value


def factor_of(multiplier: object) -> float:
    """A multiplier that makes delays grow."""
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


def _rules(errors: object, *, name: str) -> tuple[Rule, ...]:
    rules = errors if isinstance(errors, tuple) else (errors,)
    for each in rules:
        if isinstance(each, type):
            is_rule = issubclass(each, BaseException)
        else:
            is_rule = callable(each) or isinstance(each, Named)
        if not is_rule:
            raise InvalidOption(
                f"{name} has {each!r}, which is not an exception class, nor a function.",
                fix=f"Pass classes, or functions that are asked for the error: {name}=(TimeoutError, is_transient).",
            )
    return rules


def _text(value: object) -> str:
    match value:
        case timedelta():
            return text_of(value)
        case (only,):
            return _rule_text(only)
        case tuple():
            return f"({', '.join(map(_rule_text, value))})"
        case _:
            return repr(value)


def _rule_text(rule: object) -> str:
    return getattr(rule, "__name__", None) or repr(rule)
