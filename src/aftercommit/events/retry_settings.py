"""Retry policies as configuration says them: by name, with their properties. Nothing is imported by a name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from aftercommit.errors import InvalidOption, did_you_mean
from aftercommit.events.retry import (
    Exponential,
    ExponentialJitter,
    Fixed,
    Jittered,
    Linear,
    NoRetry,
    RetryPolicy,
    is_policy,
)
from aftercommit.events.retry_rules import Named, RetryRules

#: A policy; the name of one; or a mapping of its name (`policy`) and its properties.
Retry: TypeAlias = RetryPolicy | str | Mapping[str, Any]

_POLICIES: Final[Mapping[str, type[RetryRules]]] = {
    "exponential": Exponential,
    "exponential_jitter": ExponentialJitter,
    "fixed": Fixed,
    "linear": Linear,
    "jittered": Jittered,
    "no_retry": NoRetry,
}

#: How configuration calls what the constructors call otherwise; `policy` is the name of the policy itself there.
_KEYWORDS: Final = {"include": "retry_on", "exclude": "give_up_on", "base_policy": "policy"}


def policy_of(value: Any, *, name: str) -> RetryPolicy:
    """The policy that the option `name` was given: itself, by its name, or by a mapping of its name and properties.

    >>> policy_of({"policy": "fixed", "delay": "3s", "exclude": ["ValueError"]}, name="retry")
    Fixed(delay=3s, give_up_on='ValueError')
    """
    if isinstance(value, str):
        return _made(value, {}, name=name)
    if isinstance(value, Mapping):
        properties = dict(value)
        return _made(properties.pop("policy", None), properties, name=name)
    if not is_policy(value):
        raise InvalidOption(
            f"{name}={value!r} is no retry policy",
            fix="pass Exponential(…), ExponentialJitter(…), Fixed(…), Linear(…), Jittered(…), NoRetry(), an object "
            'with delay(attempts) and should_retry(error), "exponential", or {"policy": "fixed", "delay": "5s"}',
        )
    return cast("RetryPolicy", value)


def _made(policy: object, properties: dict[Any, Any], *, name: str) -> RetryPolicy:
    if not isinstance(policy, str) or policy not in _POLICIES:
        raise InvalidOption(f"{name}: there is no policy {policy!r}", fix=_advice(str(policy), _POLICIES))
    known = _properties(_POLICIES[policy])
    for each in properties:
        if each not in known:
            raise InvalidOption(f"{name}: {policy} has no property {each!r}", fix=_advice(str(each), known))
    arguments = {known[each]: _value(each, value, name=name) for each, value in properties.items()}
    return cast("RetryPolicy", _POLICIES[policy](**arguments))


def _properties(kind: type[RetryRules]) -> dict[str, str]:
    """The properties of a policy, and the keywords that they are."""
    own = {each for each, parameter in inspect.signature(kind).parameters.items() if parameter.kind != _REST}
    keywords = {each: each for each in own - {"random", "policy", *_KEYWORDS.values()}}
    renamed = {said: keyword for said, keyword in _KEYWORDS.items() if said != "base_policy" or keyword in own}
    return {**keywords, "max_attempts": "max_attempts", **renamed}


_REST: Final = inspect.Parameter.VAR_KEYWORD


def _value(each: str, value: Any, *, name: str) -> Any:
    if each == "base_policy":
        return policy_of(value, name=f"{name}[{each!r}]")
    if each in ("include", "exclude"):
        errors = value if isinstance(value, list | tuple | set | frozenset) else [value]
        return tuple(Named(error) if isinstance(error, str) else error for error in errors)
    return value


def _advice(name: str, known: Mapping[str, object]) -> str:
    return did_you_mean(name, known).replace("the options are", "there are")
