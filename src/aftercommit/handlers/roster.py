"""The handlers of one set: by id and alias, in order of registration, with the fallbacks for payload types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aftercommit.errors import DuplicateHandler
from aftercommit.handlers.handler import Fallback, Handler
from aftercommit.handlers.signatures import where

AnyHandler = Handler[Any, ..., Any]


class Roster:
    """Every id, alias and payload type has one owner."""

    def __init__(self) -> None:
        self.handlers: dict[str, AnyHandler] = {}
        self.fallbacks: list[Fallback] = []
        self._names: dict[str, AnyHandler] = {}

    def __len__(self) -> int:
        return len(self.handlers)

    def named(self, name: str) -> AnyHandler | None:
        """The handler with this id or alias."""
        return self._names.get(name)

    def names(self) -> Sequence[str]:
        return tuple(self._names)

    def check(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        """Refuse what cannot be added, before anything is."""
        names = dict(self._names)
        for handler in handlers:
            for name in _names(handler):
                known = names.setdefault(name, handler)
                if known is not handler:
                    raise DuplicateHandler(
                        f"two handlers are called {name!r}: {where(known.function)} and {where(handler.function)}; "
                        "rows are stored under that name",
                        fix=f'give one of them another: @outbox.handler(…, id="{name}-2")',
                    )
        payloads = [known.payload for known in self.fallbacks]
        for fallback in fallbacks:
            if fallback.payload in payloads:
                raise DuplicateHandler(
                    f"{fallback.payload!r} has a fallback already; {where(fallback.function)} would be a second one",
                    fix="bind it to its handler: @handler.fallback",
                )
            payloads.append(fallback.payload)

    def add(self, handlers: Sequence[AnyHandler], fallbacks: Sequence[Fallback]) -> None:
        """What `check` has let pass."""
        for handler in handlers:
            self._names.update(dict.fromkeys(_names(handler), handler))
            self.handlers[handler.id] = handler
        self.fallbacks.extend(fallbacks)


def _names(handler: AnyHandler) -> tuple[str, ...]:
    return handler.id, *handler.declared.aliases
