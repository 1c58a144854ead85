"""What `manage.py check` has to say about the outbox."""

from __future__ import annotations

from typing import Any, Final

import django
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004  (Django's names)
from django.db import connections

from aftercommit.django.conf import aliases
from aftercommit.django.databases import begins_deferred
from aftercommit.django.outboxes import outbox_for
from aftercommit.errors import OutboxError

#: The first that begins a transaction as its option says.
_HAS_TRANSACTION_MODE: Final = django.VERSION >= (5, 1)


def check_settings(**_: Any) -> list[CheckMessage]:
    """Every outbox of settings.AFTERCOMMIT can be made."""
    try:
        for alias in aliases():
            outbox_for(alias)
    except OutboxError as error:
        return [Error(error.message, hint=error.fix, obj="settings.AFTERCOMMIT", id="aftercommit.E001")]
    return []


def check_transaction_mode(**_: Any) -> list[CheckMessage]:
    """On SQLite a transaction that reads first and writes later fails when somebody wrote in between; we often do."""
    if check_settings():
        return []  # that comes first
    return [_deferred(alias) for alias in aliases() if alias in connections and begins_deferred(connections[alias])]


def _deferred(alias: str) -> CheckMessage:
    mend = f'DATABASES[{alias!r}]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}}'
    return Warning(
        f"the SQLite database {alias!r} begins transactions deferred: one that reads before it writes can fail with "
        '"database is locked" whenever the outbox settles an event in between',
        hint=mend if _HAS_TRANSACTION_MODE else f"upgrade to Django 5.1, then {mend}",
        obj=f"settings.DATABASES[{alias!r}]",
        id="aftercommit.W001",
    )
