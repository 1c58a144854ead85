"""What handlers need while they are called, such as a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Resource(Protocol):
    """Opened when an outbox starts, in the background, or else by whoever needs it first; closed when it has ended.
    All three are called again for the next start."""

    @property
    def name(self) -> str: ...

    @property
    def is_open(self) -> bool:
        """Whether there is something to close."""

    @property
    def open(self) -> Callable[[], Any]:
        """Of either colour. What it raises is its own to tell."""

    @property
    def close(self) -> Callable[[], Any]:
        """Of either colour; nobody is using it any more."""

    def abandon(self) -> None:
        """In a forked child: forget what the parent has opened, without a word to anybody."""
