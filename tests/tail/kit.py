"""Tails over databases of a private server that replicates logically."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aftercommit import AsyncReplicationTail, ReplicationTail
from tests.support import Awaited, World

#: A look that nobody waits for: what is found sooner was told of.
SELDOM = "1h"


class TailWorld(World):
    """A runtime and a driver, over a database of this test's own, with a slot of this test's own."""

    def __init__(self, name: str, folder: Path, url: str, slot: str) -> None:
        super().__init__(name, folder, "postgres", url)
        self.slot = slot

    def tail(self, **options: Any) -> Any:
        """One whose methods are awaited in both worlds; closed when the scenario ends."""
        kind = AsyncReplicationTail if self.is_async else ReplicationTail
        made = kind(self.url, slot=self.slot, **{"create_schema": True, **options})
        adapted = made if self.is_async else Awaited(made)
        self._made.append(adapted)
        return adapted

    def writer(self, **options: Any) -> Any:
        return self.outbox(wiring="writer_only", replication=self.slot, **options)

    @property
    def plain_url(self) -> str:
        """As psycopg takes it."""
        return urlsplit(self.url)._replace(scheme="postgresql").geturl()


async def write(outbox: Any, *payloads: object, kind: str = "Happened", **options: Any) -> None:
    """Each in a transaction of its own."""
    for payload in payloads:
        async with outbox.transaction():
            await outbox.write(kind, payload, **options)
