"""Listening over psycopg. Below its connections, on libpq: there a question has a time limit, and what comes in
together with an answer is not lost, whatever the version of psycopg."""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from time import monotonic
from typing import Any

import psycopg
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from aftercommit.stores.postgres.dialect import WHO_SERVES
from aftercommit.stores.postgres.wakeups import ANSWER, no_answer


def listen_sql(channel: str) -> str:
    """Messages are UTF-8, whatever the session was opened with."""
    name = channel.replace('"', '""')
    return f"SET client_encoding TO 'UTF8'; LISTEN \"{name}\""


class Wire:
    """What a session says and hears. It never waits: `asked` yields how long somebody should wait for the socket, and
    is told whether anything came."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.connection = connection
        self._server = connection.pgconn
        self._heard: list[str] = []

    @property
    def socket(self) -> int:
        return self._server.socket

    def take(self) -> list[str]:
        self._listen()
        heard, self._heard = self._heard, []
        return heard

    def _listen(self) -> None:
        self._server.consume_input()
        while (notification := self._server.notifies()) is not None:
            self._heard.append(notification.extra.decode(errors="replace"))

    def asked(self, words: str) -> Generator[float, bool, bytes | None]:
        """The first value of the last answer."""
        self._server.send_query(words.encode())
        self._server.flush()
        value, limit = None, monotonic() + ANSWER
        while True:
            while self._server.is_busy():
                if not (yield limit - monotonic()):
                    raise no_answer()
                self._listen()
            if (result := self._server.get_result()) is None:
                return value
            if result.status == ExecStatus.FATAL_ERROR:
                raise error_from_result(result)
            value = result.get_value(0, 0) if result.ntuples else None

    def is_served_by(self, process: bytes | None) -> bool:
        return process is not None and int(process) == self._server.backend_pid


class PsycopgEar:
    """Waits in its thread for the session, and for a socket by which others wake it."""

    is_here = True

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._wire = Wire(connection)
        self._bell, self._rope = socket.socketpair()
        for end in (self._bell, self._rope):
            end.setblocking(False)
        #: Nobody closes the connection while it is used; whoever waits is woken first.
        self._in_use = threading.Lock()

    async def is_direct(self) -> bool:
        return self._wire.is_served_by(self._ask(WHO_SERVES))

    async def listen(self, channel: str) -> None:
        self._ask(listen_sql(channel))

    def _ask(self, words: str) -> bytes | None:
        with self._in_use:
            asking = self._wire.asked(words)
            try:
                seconds = next(asking)
                while True:
                    seconds = asking.send(self._is_rung(seconds))
            except StopIteration as answer:
                value: bytes | None = answer.value
                return value

    async def wait(self, seconds: float) -> bool:
        with self._in_use:
            return self._is_rung(seconds)

    def _is_rung(self, seconds: float) -> bool:
        with DefaultSelector() as selector:
            selector.register(self._wire.socket, EVENT_READ)
            selector.register(self._bell, EVENT_READ)
            ready = selector.select(max(0.0, seconds))
        with suppress(OSError):  # nobody rang, or it was closed meanwhile
            self._bell.recv(4096)
        return bool(ready)

    def take(self) -> list[str]:
        with self._in_use:
            return self._wire.take()

    def wake(self) -> None:
        with suppress(OSError):  # it is closed, or rung often enough
            self._rope.send(b"!")

    async def close(self) -> None:
        self.wake()
        with self._in_use:
            self._wire.connection.close()
            self._bell.close()
            self._rope.close()
