"""Where Redis is measured: keys of its own on a server that answers."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Final, Self

from aftercommit import Outbox
from aftercommit.stores.redis.scripts import KeyNames, Script, scripts_of
from bench.servers.places import Absent

_CHUNK: Final = 1_000


class Redis:
    """The keys of an outbox, seen by somebody who is not measured."""

    variable: ClassVar[str] = "AFTERCOMMIT_TEST_REDIS_URL"
    default: ClassVar[str] = "redis://127.0.0.1:6379/0"

    def __init__(self, url: str) -> None:
        self.url = url
        self.table = f"aftercommit_bench_{secrets.token_hex(4)}"
        self.names = KeyNames(self.table)
        #: What a backlog is copied from, and how many rows it has.
        self._source = KeyNames(f"{self.table}_backlog")
        self._backlog = 0

    @classmethod
    @contextmanager
    def opened(cls) -> Iterator[Self]:
        """A new outbox until the end of the block."""
        place = cls.connected()
        try:
            with _only_errors_logged():
                place.clear()
                yield place
        finally:
            place._drop(place.names)
            place._drop(place._source)
            place.close()

    @classmethod
    def connected(cls) -> Self:
        place = cls(os.environ.get(cls.variable) or cls.default)
        try:
            place.connect()
        except Exception as error:
            raise Absent(f"no Redis answers; {cls.variable} names one ({type(error).__name__})") from None
        return place

    def connect(self) -> None:
        import redis  # noqa: PLC0415  (an extra; a run without it has the other figures)

        self._client = redis.Redis.from_url(self.url, socket_connect_timeout=5)
        self._client.ping()

    def close(self) -> None:
        self._client.close()

    def facts(self) -> str:
        """Version and settings that decide what a write costs."""
        info = self._client.info()
        names = ("aof_enabled", "maxmemory_policy", "connected_slaves")
        return ", ".join([str(info["redis_version"]), *(f"{name} {info[name]}" for name in names)])

    @property
    def scripts(self) -> dict[str, Script]:
        return scripts_of(self.names)

    def clear(self) -> None:
        self._drop(self.names)
        self._set_up(self.table)

    def _set_up(self, table: str) -> None:
        outbox = Outbox(self.url, table=table)
        outbox.create_schema()
        outbox.close()

    def _drop(self, names: KeyNames) -> None:
        if found := self._keys(names):
            self._client.unlink(*found)

    def _keys(self, names: KeyNames) -> list[bytes]:
        return list(self._client.scan_iter(names[""] + b"*", count=10_000))

    def fill(self, rows: int) -> None:
        """That many events that are due, instead of what was there."""
        if self._backlog != rows:
            self._make_backlog(rows)
        self._drop(self.names)
        before, after = self._source[""], self.names[""]
        with self._client.pipeline(transaction=True) as pipeline:
            for key in self._keys(self._source):
                pipeline.copy(key, key.replace(before, after, 1))
            pipeline.execute()
        assert self.pending() == rows

    def _make_backlog(self, rows: int) -> None:
        from bench.redis import hand  # noqa: PLC0415

        self._drop(self._source)
        self._set_up(self._source.table)
        append = scripts_of(self._source)["append"]
        self._client.script_load(append.text)
        for start in range(0, rows, _CHUNK):
            with self._client.pipeline(transaction=False) as pipeline:
                for number in range(start, min(start + _CHUNK, rows)):
                    pipeline.execute_command(*append.by_sha(hand.row(number)))
                pipeline.execute()
        self._backlog = rows

    def pending(self) -> int:
        return int(self._client.zcard(self.names["free"])) + int(self._client.zcard(self.names["leased"]))

    def is_pending(self) -> bool:
        return self.pending() > 0

    def dead(self) -> int:
        return int(self._client.zcard(self.names["dead"]))


@contextmanager
def _only_errors_logged() -> Iterator[None]:
    """How this server keeps what it has is in the facts; each outbox would warn of it again."""
    logger = logging.getLogger("aftercommit")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
