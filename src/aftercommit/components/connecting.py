"""Where connections come from, and which store speaks to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, runtime_checkable

from aftercommit.ports import Colour, EventStore
from aftercommit.stores.detect import open_store

#: What every store is told.
_PLAIN: Final = {"table": "outbox_event", "schema": None}


@runtime_checkable
class ConnectionProvider(Protocol):
    """Opens connections for what happens outside your transactions: claims, renewals, outcomes."""

    def get_connection(self) -> Any:
        """A new connection, which the outbox closes."""


class DataSourceConnectionProvider:
    """Connections that a function opens: `DataSourceConnectionProvider(lambda: psycopg.connect(dsn))`."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect

    def get_connection(self) -> Any:
        return self._connect()


def detected(target: Any, colour: Colour, options: dict[str, Any]) -> EventStore:
    """The store for a provider, or for whatever an outbox takes as its target."""
    if isinstance(target, ConnectionProvider):
        target = target.get_connection
    return open_store(target, colour, **{**_PLAIN, **options})
