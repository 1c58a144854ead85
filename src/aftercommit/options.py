"""What an option is: the kind of value that it takes, what it means, and the wirings in which it makes no sense."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from enum import Enum, Flag, auto
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from aftercommit.errors import InvalidOption
from aftercommit.events.context import Providers
from aftercommit.events.durations import duration
from aftercommit.events.retry import RetryPolicy
from aftercommit.events.retry_settings import policy_of

T = TypeVar("T")


class Wiring(Enum):
    """The ready-made ways to put an outbox together."""

    CUSTOM = "Outbox"
    SINGLE_NODE = "single_node"
    MULTI_NODE = "multi_node"
    ORDERED = "ordered"
    WRITER_ONLY = "writer_only"


#: Why a wiring refuses the options that it refuses.
REASONS: Final[Mapping[Wiring, str]] = {
    Wiring.SINGLE_NODE: "a single node needs both the hot path and the poller",
    Wiring.MULTI_NODE: "without a poller no node would take over from another",
    Wiring.ORDERED: "order is kept by claiming from the table, in order of position",
    Wiring.WRITER_ONLY: "a writer-only outbox delivers nothing",
}

#: Returns the value of the option of that name as the outbox keeps it, or refuses it.
Check = Callable[[str, Any], Any]


class Kind(NamedTuple):
    """What an option takes, in words and as a check."""

    words: str
    check: Check
    #: Whether it is an object, which settings that are text name by its path.
    is_object: bool = False
    #: What a text says, for settings that are text; `check` judges it. None: no text can say it.
    from_text: Callable[[str], object] | None = str


class Of(Flag):
    """What an option is about, where that decides who may set it."""

    WRITING = 0
    #: Delivering, which a writer-only outbox does not do.
    DELIVERY = auto()
    #: How order is kept: without order it has no effect.
    ORDER = auto()


class Option(NamedTuple):
    """What is to be said of an option beside its name, type and default, which the dataclass has."""

    kind: Kind
    of: Of
    #: What somebody who chooses a value has to know, in Markdown.
    meaning: str
    #: The default for people, where its value says too little.
    shown: str = ""
    refused_by: tuple[Wiring, ...] = ()
    #: The default in wirings that have their own.
    default_in: Mapping[Wiring, object] = MappingProxyType({})

    def is_refused_by(self, wiring: Wiring) -> bool:
        return wiring in self.refused_by or (wiring is Wiring.WRITER_ONLY and Of.DELIVERY in self.of)


def option(
    default: T,
    kind: Kind,
    of: Of,
    meaning: str,
    *,
    shown: str = "",
    refused_by: tuple[Wiring, ...] = (),
    default_in: Mapping[Wiring, T] = MappingProxyType({}),
) -> T:
    """A field of a dataclass that is an option."""
    made: T = field(default=default, metadata={"option": Option(kind, of, meaning, shown, refused_by, default_in)})
    return made


# ---------------------------------------------------------------- kinds

#: Short enough for the columns together with what makes it unique, and without the mark that stands between the two.
_OWNER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,63}", re.ASCII)

#: As PostgreSQL takes the name of a slot.
_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)


def _wrong(name: str, value: object, fix: str) -> InvalidOption:
    return InvalidOption(f"{name} is {value!r}", fix=fix)


def _count(name: str, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value, f"pass {name} as an int of at least 1")
    return value


def _switch(name: str, value: object) -> object:
    if not isinstance(value, bool):
        raise _wrong(name, value, f"pass {name}=True or {name}=False")
    return value


def _switch_or_none(name: str, value: object) -> object:
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, value, "pass True, False, or leave it out")
    return value


def _interceptors(name: str, value: Any) -> tuple[object, ...]:
    interceptors = tuple(value) if isinstance(value, Sequence) else (None,)
    for each in interceptors:
        if isinstance(each, type) or not (hasattr(each, "before_dispatch") and hasattr(each, "after_dispatch")):
            raise _wrong(name, value, "pass a list of EventInterceptor objects")
    return interceptors


def _providers(name: str, value: Any) -> tuple[object, ...]:
    if not isinstance(value, Sequence):
        raise _wrong(name, value, "pass a list of functions without arguments")
    Providers(value)  # refuses what cannot be one
    return tuple(value)


def _owner(name: str, value: object) -> object:
    if not isinstance(value, str) or not _OWNER.fullmatch(value):
        raise _wrong(
            name, value, "use 1 to 64 of these: letters, digits and . _ : @ -, the first one a letter or digit"
        )
    return value


def _slot(name: str, value: object) -> object:
    if not isinstance(value, str) or not _SLOT.fullmatch(value):
        raise _wrong(name, value, "use 1 to 63 of these: small letters, digits and underscores")
    return value


def _function(name: str, value: object) -> object:
    if not callable(value) or isinstance(value, type):
        raise _wrong(name, value, "pass a function, or an object that can be called")
    return value


def _as_given(_: str, value: object) -> object:
    """The store and the codec, who know what they take, refuse the rest."""
    return value


def _policy(name: str, value: Any) -> RetryPolicy:
    return policy_of(value, name=name)


# ---------------------------------------------------------------- what texts say

_SWITCHES: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}


def _number_in(text: str) -> object:
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else text


def _switch_in(text: str) -> object:
    return _SWITCHES.get(text.lower(), text)


def _seconds_in(text: str) -> object:
    """A bare number is seconds, as it is in code; else the text is one that `duration` reads."""
    return float(text) if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else text


COUNT: Final = Kind("an int of at least 1", _count, from_text=_number_in)
SWITCH: Final = Kind("`True` or `False`", _switch, from_text=_switch_in)
SWITCH_OR_NONE: Final = Kind("`True`, `False` or `None`", _switch_or_none, from_text=_switch_in)
DURATION: Final = Kind("a duration", lambda name, value: duration(value, name=name), from_text=_seconds_in)
ABOVE_ZERO: Final = Kind(
    "a duration above zero", lambda name, value: duration(value, name=name, positive=True), from_text=_seconds_in
)
OWNER: Final = Kind("up to 64 letters, digits and `. _ : @ -`", _owner)
SLOT: Final = Kind("up to 63 small letters, digits and underscores", _slot)
FUNCTION: Final = Kind("a function", _function, is_object=True, from_text=None)
NAME: Final = Kind("letters, digits, underscores", _as_given)
POLICY: Final = Kind(
    "an object with `delay(attempts)` and `should_retry(error)`, or the name of a policy, alone or with its properties",
    _policy,
    is_object=True,
)
INTERCEPTORS: Final = Kind("a list of `EventInterceptor` objects", _interceptors, is_object=True, from_text=None)
PROVIDERS: Final = Kind("a list of functions", _providers, is_object=True, from_text=None)
SERIALIZERS: Final = Kind("a `Serializer`, or a list of them", _as_given, is_object=True, from_text=None)


def or_none(kind: Kind) -> Kind:
    read = kind.from_text
    return kind._replace(
        words=f"{kind.words}, or `None`",
        check=lambda name, value: None if value is None else kind.check(name, value),
        from_text=None if read is None else lambda text: None if text.lower() == "none" else read(text),
    )


def choice(*choices: str) -> Kind:
    texts = [f'"{each}"' for each in choices]

    def check(name: str, value: object) -> object:
        if value not in choices:
            raise _wrong(name, value, f"pass {' or '.join(texts)}")
        return value

    return Kind(" or ".join(f"`{text}`" for text in texts), check)


def having(words: str, *methods: str) -> Kind:
    """An object with these methods, and not the class of one."""

    def check(name: str, value: object) -> object:
        missing = [method for method in methods if not callable(getattr(value, method, None))]
        if missing or isinstance(value, type):
            raise InvalidOption(
                f"{name} is {value!r}, which has no {', '.join(missing) or 'instance'}",
                fix=f"pass an object with {', '.join(methods)}",
            )
        return value

    return Kind(words, check, is_object=True, from_text=None)
