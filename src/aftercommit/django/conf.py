"""What settings.py says: `AFTERCOMMIT = {alias: options}`, for each database the options of its outbox."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS
from django.utils.module_loading import import_string

from aftercommit.config import OPTIONS
from aftercommit.errors import InvalidOption

#: What is an object may be given as the path to one, so that settings.py need not import it.
_OBJECTS: Final = frozenset(name for name, option in OPTIONS.items() if option.kind.is_object)


def aliases() -> list[str]:
    """The databases that settings.py gives options to; without any, the default one."""
    return list(_given()) or [DEFAULT_DB_ALIAS]


def options_of(alias: str) -> dict[str, Any]:
    """The options of one outbox, with paths replaced by what they lead to."""
    return {name: _loaded(value) if name in _OBJECTS else value for name, value in _given_to(alias).items()}


def table_of(alias: str) -> str:
    """The event table as a model names it. Django leaves a name in quotation marks as it is."""
    options: Mapping[str, Any] = {}
    with suppress(InvalidOption):  # models are loaded before the check, whose word it is
        options = _given_to(alias)
    table: str = options.get("table", "outbox_event")
    return table if options.get("schema") is None else f'"{options["schema"]}"."{table}"'


def _given_to(alias: str) -> Mapping[str, Any]:
    options = _given().get(alias, {})
    if not isinstance(options, Mapping):
        raise InvalidOption(
            f"AFTERCOMMIT[{alias!r}] is {options!r}", fix=f'AFTERCOMMIT = {{{alias!r}: {{"worker_count": 4}}}}'
        )
    return options


def _given() -> Mapping[str, Any]:
    given = getattr(settings, "AFTERCOMMIT", {})
    if not isinstance(given, Mapping):
        raise InvalidOption(f"AFTERCOMMIT is {given!r}", fix='AFTERCOMMIT = {"default": {"worker_count": 4}}')
    return given


def _loaded(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_loaded(each) for each in value]
    if not isinstance(value, str) or "." not in value:
        return value  # the name of a retry policy has no dots, and paths have
    try:
        found = import_string(value)
    except ImportError as error:
        raise InvalidOption(f"AFTERCOMMIT names {value!r}: {error}", fix="give the path of an object") from error
    return found() if isinstance(found, type) else found
