"""The inbox for Django: `INSTALLED_APPS += ["aftercommit.django.inbox"]`, then `manage.py migrate`.

`inbox` is the inbox of the default database, `inbox_for(alias)` that of another one. Both save the id of a message in
the atomic block that is open on their database, or in one of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftercommit.django.inbox.inboxes import DjangoInbox, inbox_for

    inbox: DjangoInbox

__all__ = ["DjangoInbox", "inbox", "inbox_for"]


def __getattr__(name: str) -> Any:
    """Django imports this package before its settings can be read, so what needs them is loaded when asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aftercommit.django.inbox import inboxes  # noqa: PLC0415

    return inboxes.inbox_for() if name == "inbox" else getattr(inboxes, name)
