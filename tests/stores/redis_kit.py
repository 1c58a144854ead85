"""An outbox in Redis as tests see it: keys of a name of its own, and a look at its rows behind the store's back."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import redis

from aftercommit.stores.redis.rows import ENVELOPE, ROW, whole_row
from tests.support import PATIENCE

#: A server that is shared: nothing on it is touched but keys of names that a test has made up.
URL = os.environ.get("AFTERCOMMIT_TEST_REDIS_URL", "redis://127.0.0.1:6379")

#: What a row of `outbox_event` is called, of what is kept elsewhere here.
_INDEXES = ("free", "leased", "dead", "dead_at", "done")


class Keys:
    """The keys of the outboxes of one test. Their tables begin with a word that nobody else uses."""

    def __init__(self, url: str = URL) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)
        self.word = f"t{uuid4().hex[:16]}"
        self.table = self.named("outbox_event")
        #: Positions whose rows do not share the envelope of their event.
        self.own: dict[int, bool] = {}

    def named(self, table: str) -> str:
        return f"{self.word}_{table}"

    def key(self, noun: str) -> str:
        return f"{{{self.table}}}:{noun}"

    def clear(self) -> None:
        found = list(self.client.scan_iter(match=f"*{self.word}*", count=1000))
        if found:
            self.client.delete(*found)

    def close(self) -> None:
        self.clear()
        self.client.close()

    def now(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    # ------------------------------------------------------------ rows

    def rows(self) -> list[dict[str, Any]]:
        """By the columns of `outbox_event`, in order of position."""
        packed, envelopes = self.client.hgetall(self.key("rows")), self.client.hgetall(self.key("events"))
        found = []
        for position, row in sorted(packed.items()):
            columns = whole_row(row, None)
            name = columns["event_id"].encode() + (b"\0" + position if columns["has_own_envelope"] else b"")
            columns = whole_row(row, envelopes.get(name))
            lane, payload = columns.pop("lane"), columns.pop("payload")
            self.own[int(position)] = bool(columns.pop("has_own_envelope"))
            is_text = isinstance(payload, str)
            times = {name: None if columns[name] is None else int(columns[name]) for name in ("available_at",)}
            found.append(
                {
                    **columns,
                    **times,
                    "position": int(position),
                    "partition_no": int(lane[:3]),
                    "payload": payload if is_text else None,
                    "payload_bytes": None if is_text else payload,
                }
            )
        return found

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        rows = [row for row in self.rows() if event_id in (None, row["event_id"])]
        assert rows
        for row in rows:
            self._put(row | columns)

    def _put(self, row: dict[str, Any]) -> None:
        """Write it anew, and put its position where it belongs now."""
        position = f"{row['position']:016}"
        key = row["event_id"] if row["event_key"] is None else row["event_key"]
        row |= {"lane": f"{row['partition_no']:03}{key}", "has_own_envelope": self.own[row["position"]]}
        name = row["event_id"] + (f"\0{position}" if row["has_own_envelope"] else "")
        place = f"{row['lane']}\0{position}"
        row["payload"] = row["payload_bytes"] if row["payload"] is None else row["payload"]
        packed = msgspec.msgpack.encode([False if row[name] is None else row[name] for name in ROW])
        pipe = self.client.pipeline()
        pipe.hset(self.key("rows"), position, packed)
        pipe.hset(self.key("events"), name, msgspec.msgpack.encode([row[name] for name in ENVELOPE]))
        for index in _INDEXES:
            pipe.zrem(self.key(index), position)
        for index in ("order", "dead_keys"):
            pipe.zrem(self.key(index), place)
        pipe.srem(self.key("retry"), position)
        ended = row["created_at"] if row["done_at"] is None else row["done_at"]
        match row["status"]:
            case 0 | 2:
                pipe.zadd(self.key("order"), {place: 0})
                is_leased = bool(row["locked_by"]) and row["lease_until"] is not None
                if is_leased:
                    pipe.zadd(self.key("leased"), {position: row["lease_until"]})
                else:
                    pipe.zadd(self.key("free"), {position: row["available_at"]})
                if row["status"] == 2:
                    pipe.sadd(self.key("retry"), position)
            case 1:
                pipe.zadd(self.key("done"), {position: ended})
            case _:
                pipe.zadd(self.key("dead"), {position: row["position"]})
                pipe.zadd(self.key("dead_keys"), {place: 0})
                pipe.zadd(self.key("dead_at"), {position: ended})
        pipe.execute()


class OwnServer:
    """A server behind a socket in a folder, for what must not be done to one that others use."""

    def __init__(self, folder: Path, *settings: str) -> None:
        # The name of a socket is short; a folder of pytest's may not be.
        self._home = TemporaryDirectory(prefix="ac-")
        self.socket = f"{self._home.name}/redis.sock"
        self.url = f"unix://{self.socket}"
        program = shutil.which("redis-server")
        if program is None:
            pytest.skip("no server: redis-server is not installed")
        command = [program, "--port", "0", "--unixsocket", self.socket, "--dir", str(folder), "--save", "", *settings]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(unix_socket_path=self.socket)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client.ping()
                return
            except redis.ConnectionError:
                assert self.process.poll() is None, "it did not start"
                assert time.monotonic() < deadline, "it does not answer"
                time.sleep(0.01)

    def until_alone(self) -> None:
        """No connection but the test's own. The server takes a moment to see that one has ended."""
        watch = threading.Event()
        for _ in range(int(PATIENCE / 0.005)):
            if self.client.info("clients")["connected_clients"] == 1:
                return
            watch.wait(0.005)
        raise AssertionError(f"others are connected: {self.client.client_list()}")

    def stop(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()
        self._home.cleanup()


async def pause() -> None:
    """For who looks again and again, under threads."""
    time.sleep(0.001)
