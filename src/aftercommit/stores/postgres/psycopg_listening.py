"""Listening over psycopg in both colours. Below its connections, on libpq: there a question has a time limit, and what
comes in together with an answer is not lost, whatever the version of psycopg."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from selectors import EVENT_READ, DefaultSelector
from time import monotonic

from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus

from aftercommit.stores.postgres.faults import ANSWER, no_answer
from aftercommit.stores.postgres.link import WHO_SERVES, Link
from aftercommit.stores.postgres.loops import LoopSignal


class PsycopgListening:
    """What a session says and hears."""

    def __init__(self, link: Link, signal: ThreadSignal | LoopSignal) -> None:
        self._link = link
        self._server = link.raw.pgconn
        self._signal = signal
        self._heard: list[str] = []
        self.wake = signal.wake

    @property
    def is_here(self) -> bool:
        return self._signal.is_here

    @property
    def descriptor(self) -> int:
        return self._link.descriptor

    async def is_direct(self) -> bool:
        process = await self._ask(WHO_SERVES)
        return process is not None and int(process) == self._server.backend_pid

    async def listen(self, channel: str) -> None:
        """Messages are UTF-8, whatever the session was opened with."""
        name = channel.replace('"', '""')
        await self._ask(f"SET client_encoding TO 'UTF8'; LISTEN \"{name}\"")

    async def _ask(self, words: str) -> bytes | None:
        """The first value of the last answer."""
        with self._signal.in_use:
            self._server.send_query(words.encode())
            self._server.flush()
            value, limit = None, monotonic() + ANSWER
            while True:
                while self._server.is_busy():
                    if not await self._signal.wait(limit - monotonic(), self._server.socket):
                        raise no_answer()
                    self._listen()
                if (result := self._server.get_result()) is None:
                    return value
                if result.status == ExecStatus.FATAL_ERROR:
                    raise error_from_result(result)
                value = result.get_value(0, 0) if result.ntuples else None

    async def wait(self, seconds: float) -> bool:
        with self._signal.in_use:
            return await self._signal.wait(seconds, self._server.socket)

    def take(self) -> list[str]:
        with self._signal.in_use:
            self._listen()
            heard, self._heard = self._heard, []
            return heard

    def _listen(self) -> None:
        self._server.consume_input()
        while (notification := self._server.notifies()) is not None:
            self._heard.append(notification.extra.decode(errors="replace"))

    def drop(self) -> None:
        self._link.drop()

    async def close(self) -> None:
        self._signal.wake()
        with self._signal.in_use:
            self._signal.end()
            await self._link.close()


class ThreadSignal:
    """A thread waits for the socket, and for another one by which others wake it."""

    is_here = True

    def __init__(self) -> None:
        self._read, self._write = socket.socketpair()
        for end in (self._read, self._write):
            end.setblocking(False)
        #: Nobody closes the connection while it is used; whoever waits is woken first.
        self.in_use = threading.Lock()

    async def wait(self, seconds: float, socket: int) -> bool:
        with DefaultSelector() as selector:
            selector.register(socket, EVENT_READ)
            selector.register(self._read, EVENT_READ)
            ready = selector.select(max(0.0, seconds))
        with suppress(OSError):  # nobody woke it, or it was closed meanwhile
            self._read.recv(4096)
        return bool(ready)

    def wake(self) -> None:
        with suppress(OSError):  # it is closed, or woken often enough
            self._write.send(b"!")

    def end(self) -> None:
        self._read.close()
        self._write.close()
