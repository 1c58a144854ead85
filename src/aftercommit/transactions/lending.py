"""The connection of a transaction, for the user's own statements; where the store speaks no SQL, commands by name."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from aftercommit.ports import Transactional


class LendsConnection:
    """What a transaction lends to its user."""

    _store: Transactional

    @abstractmethod
    def _own(self) -> Any:
        """The root of the transaction, if it is open and of this process."""

    def current_connection(self) -> Any:
        """The driver's connection, the same that business statements run on."""
        root = self._own()
        root.is_exposed = True
        return root.opened.connection

    @property
    def connection(self) -> Any:
        return self.current_connection()

    def __getattr__(self, name: str) -> Any:
        """A command of the user's, where the store collects them: `tx.set(…)`."""
        if name.startswith("_") or not self._store.capabilities.takes_commands:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self.current_connection(), name)
