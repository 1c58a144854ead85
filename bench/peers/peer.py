"""What every other library has to do here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, Protocol

import msgspec

from bench.servers.places import Postgres

#: Rows that are laid out at a time.
_CHUNK: Final = 1_000

#: Rows of a claim, where a library lets one say so.
BATCH: Final = 500

#: Gets the payload of an event, parsed.
Handler = Callable[[dict[str, Any]], None]

parse: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Writer(Protocol):
    """One client with a connection of its own."""

    async def write(self, number: int) -> None:
        """A business row and an event in one transaction."""

    async def close(self) -> None: ...


class Peer(ABC):
    """One library in one database. Its table is made once, and filled before each of its rounds."""

    #: How much faster a drain of ours should be.
    goal: ClassVar[float] = 1.0
    #: Whether it gets the smaller backlog, because it takes its time.
    is_slow: ClassVar[bool] = False

    def __init__(self, place: Postgres) -> None:
        self.place = place

    @abstractmethod
    async def set_up(self) -> None:
        """Makes its tables."""

    @abstractmethod
    async def fill(self, rows: int) -> None:
        """That many events, instead of what was there."""

    @abstractmethod
    def is_pending(self) -> bool:
        """Whether any event is not delivered."""

    @abstractmethod
    def serving(self, handler: Handler) -> AbstractAsyncContextManager[None]:
        """Delivers until the end of the block."""

    @abstractmethod
    async def writer(self) -> Writer: ...

    def committed(self) -> None:  # noqa: B027  (most want to know nothing)
        """Told after a commit of this process."""

    def is_any(self, condition: str) -> bool:
        return bool(self.place.run(f"SELECT EXISTS (SELECT 1 FROM {condition})")[0][0])


def chunks(rows: int) -> Iterator[range]:
    for start in range(0, rows, _CHUNK):
        yield range(start, min(start + _CHUNK, rows))
