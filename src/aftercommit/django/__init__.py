"""The outbox for Django: `INSTALLED_APPS += ["aftercommit.django"]`, then `manage.py migrate`.

`outbox` is the outbox of the default database, `outbox_for(alias)` that of another one. Both write in the atomic
block that is open on their database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftercommit.django.outboxes import DjangoOutbox, outbox_for

    outbox: DjangoOutbox

__all__ = ["DjangoOutbox", "outbox", "outbox_for"]


def __getattr__(name: str) -> Any:
    """Django imports this package before its settings can be read, so what needs them is loaded when asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from aftercommit.django import outboxes  # noqa: PLC0415

    return outboxes.default_outbox() if name == "outbox" else getattr(outboxes, name)
