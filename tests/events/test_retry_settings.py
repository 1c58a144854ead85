"""Retry policies by name, as configuration says them, with their properties; errors by the names of their classes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aftercommit import (
    Exponential,
    ExponentialJitter,
    Fixed,
    HandlerSet,
    InvalidOption,
    Jittered,
    Linear,
    NoRetry,
    OutboxConfig,
    RetryPolicy,
)
from aftercommit.events.retry_settings import policy_of


class Fatal(Exception):
    """Known to configuration by its name."""

    class Inner(Exception):
        """Of a qualified name."""


class Worse(Fatal):
    """A subclass of it."""


def made(value: Any) -> RetryPolicy:
    return policy_of(value, name="retry_policy")


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("exponential", Exponential()),
        ("exponential_jitter", ExponentialJitter()),
        ("fixed", Fixed()),
        ("linear", Linear()),
        ("jittered", Jittered()),
        ("no_retry", NoRetry()),
    ],
)
def test_a_name_is_the_policy_with_its_defaults(name: str, policy: RetryPolicy) -> None:
    assert made(name) == made({"policy": name}) == policy


def test_the_defaults_are_those_of_the_documents() -> None:
    """004: fixed 5 s; exponential from 1 s, doubled, at most 60 s; jittered 500 ms over exponential."""
    assert Fixed() == Fixed("5s")
    assert [Exponential().delay(n).total_seconds() for n in range(1, 9)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert Jittered() == Jittered(Exponential("1s", "60s", 2.0), "500ms")
    assert Jittered(Fixed()) == Jittered(Fixed("5s"), jitter="500ms")
    assert [Linear().delay(n).total_seconds() for n in (1, 2, 60, 61)] == [1, 2, 60, 60]


@pytest.mark.parametrize(
    ("settings", "policy"),
    [
        (
            {"policy": "exponential", "initial": "1s", "maximum": "1m", "multiplier": 3, "max_attempts": 4},
            Exponential("1s", "1m", 3, max_attempts=4),
        ),
        ({"policy": "exponential_jitter", "base": "2s", "maximum": 8}, ExponentialJitter("2s", "8s")),
        ({"policy": "fixed", "delay": timedelta(seconds=3)}, Fixed(3)),
        ({"policy": "linear", "initial": 1, "increment": 2, "maximum": 7}, Linear(1, 2, 7)),
        ({"policy": "jittered", "jitter": "2s"}, Jittered(Exponential(), "2s")),
        ({"policy": "jittered", "base_policy": "fixed"}, Jittered(Fixed(), "500ms")),
        ({"policy": "jittered", "base_policy": {"policy": "fixed", "delay": "3s"}}, Jittered(Fixed("3s"))),
        (
            {"policy": "fixed", "include": [OSError], "exclude": TimeoutError},
            Fixed(retry_on=OSError, give_up_on=TimeoutError),
        ),
    ],
)
def test_properties_are_the_keywords_of_the_policy(settings: dict[str, Any], policy: RetryPolicy) -> None:
    before = repr(settings)
    assert made(settings) == policy
    assert repr(settings) == before


def test_a_policy_is_taken_as_it_is() -> None:
    policy = Fixed("1s")
    assert made(policy) is policy


def caused_by(cause: Exception) -> Exception:
    error = RuntimeError("outer")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("name", ["Fatal", f"{__name__}.Fatal"])
@pytest.mark.parametrize("named", [lambda name: name, lambda name: [name], lambda name: ("KeyError", name)])
def test_errors_go_by_the_names_of_their_classes(name: str, named: Any) -> None:
    """Bare or with the module; of the error, its bases, its causes and the members of its groups."""
    included, excluded = (
        made({"policy": "fixed", "include": named(name)}),
        made({"policy": "fixed", "exclude": named(name)}),
    )
    for error in (Fatal(), Worse(), caused_by(Worse()), ExceptionGroup("several", [ValueError(), Fatal()])):
        assert included.should_retry(error)
        assert not excluded.should_retry(error)
    for error in (ValueError(), Fatal.Inner(), caused_by(OSError())):
        assert not included.should_retry(error)
        assert excluded.should_retry(error)


@pytest.mark.parametrize("name", ["Inner", "Fatal.Inner", f"{__name__}.Fatal.Inner", "Exception", "builtins.Exception"])
def test_inner_and_built_in_classes_have_names_too(name: str) -> None:
    assert not made({"policy": "fixed", "exclude": [name]}).should_retry(Fatal.Inner())


@pytest.mark.parametrize("name", ["atal", "other.Fatal", "fatal", "Fatal.Fatal"])
def test_a_name_is_met_as_a_whole(name: str) -> None:
    assert made({"policy": "fixed", "exclude": [name]}).should_retry(Fatal())


def test_what_is_excluded_stays_so_when_it_is_included_as_well() -> None:
    policy = made({"policy": "fixed", "include": ["OSError"], "exclude": ["TimeoutError"]})
    assert policy.should_retry(ConnectionError())
    assert not policy.should_retry(TimeoutError())


@pytest.mark.parametrize(
    ("wrong", "said", "fix"),
    [
        ("random", "there is no policy 'random'", "there are exponential, exponential_jitter, fixed"),  # TC-390
        ("exponentail", "there is no policy 'exponentail'", "did you mean exponential?"),
        ("", "there is no policy ''", "there are"),
        ({"delay": "5s"}, "there is no policy None", "there are"),
        ({"policy": 3}, "there is no policy 3", "there are"),
        ({"policy": ["fixed"]}, "there is no policy", "fixed"),
        ({"policy": "fixed", "dleay": "5s"}, "fixed has no property 'dleay'", "did you mean delay?"),
        ({"policy": "fixed", "initial": "5s"}, "fixed has no property 'initial'", "there are delay, exclude, include"),
        ({"policy": "fixed", "base_policy": "fixed"}, "fixed has no property 'base_policy'", "there are"),
        ({"policy": "jittered", "random": 4}, "jittered has no property 'random'", "there are"),
        ({"policy": "fixed", 3: 4}, "fixed has no property 3", "there are"),
        ({"policy": "jittered", "base_policy": "fxied"}, r"\['base_policy'\]: there is no policy 'fxied'", "fixed?"),
        ({"policy": "fixed", "delay": "soon"}, "delay='soon'", "5s"),
        ({"policy": "fixed", "include": ["no name"]}, "'no name' is not the name of an exception", "Error"),
        ({"policy": "fixed", "exclude": [3]}, "give_up_on has 3", "classes"),
        ({"policy": "fixed", "exclude": [str]}, "give_up_on has <class 'str'>", "classes"),
        (Fixed, "is no retry policy", "Exponential"),
        (3, "is no retry policy", "exponential"),
        (None, "is no retry policy", "exponential"),
    ],
)  # fmt: skip
def test_what_is_no_policy_is_refused_with_the_closest_name(wrong: Any, said: str, fix: str) -> None:
    """TC-390, TC-391, TC-401."""
    with pytest.raises(InvalidOption, match=said) as caught:
        made(wrong)
    assert fix in caught.value.fix


def test_the_option_and_a_handler_take_both_forms() -> None:
    settings = {"policy": "fixed", "delay": "3s"}
    assert OutboxConfig(retry_policy="jittered").retry_policy == Jittered()
    assert OutboxConfig(retry_policy=settings).retry_policy == Fixed("3s")
    handlers = HandlerSet()
    by_name = handlers.handler("A", id="a", retry="fixed")(lambda event: None)
    by_settings = handlers.handler("A", id="b", retry=settings)(lambda event: None)
    assert (by_name.settings.retry, by_settings.settings.retry) == (Fixed(), Fixed("3s"))
    with pytest.raises(InvalidOption, match="retry: there is no policy 'fxied'"):
        handlers.handler("A", id="c", retry="fxied")(lambda event: None)
    with pytest.raises(InvalidOption, match="retry_policy: there is no policy 'fxied'"):
        OutboxConfig(retry_policy="fxied")
