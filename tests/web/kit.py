"""What the tests of the probes ask with, and a door to a server that can be shut."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.promises.waiting import pause
from tests.support import _blocking

HERE, ELSEWHERE = "127.0.0.1", "203.0.113.7"


async def get(app: Any, path: str, *, client: str = HERE, host: str = "localhost", **headers: str) -> httpx.Response:
    """On the loop that runs, else on one of its own."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, client=(client, 50000))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as browser:
            return await browser.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    return await ask()


async def until_says(app: Any, path: str, status: int, look: Callable[[], None] = lambda: None) -> httpx.Response:
    """Ask until the answer is this one; `look` is called after each."""
    while True:
        answer = await get(app, path)
        look()
        if answer.status_code == status:
            return answer
        await _blocking(lambda: pause(0.02))  # a question costs more than a look at a table


class Door:
    """A way to a server. Shut, it ends every session, and new ones as soon as they come; frozen, it ends none, and
    passes nothing on, as a firewall does that has forgotten them."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server((HERE, 0))
        login = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
        self.url = parts._replace(netloc=f"{login}{HERE}:{self._listener.getsockname()[1]}").geturl()
        self.is_shut = self.is_frozen = False
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.is_shut = True
        self._end_all()

    def open(self) -> None:
        self.is_shut = False

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._end_all()

    def _end_all(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_shut:
                    client.close()
                    continue
                server = socket.create_connection(self._server)
                self._ends += (client, server)
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while said := one.recv(65536):
                if not self.is_frozen:
                    other.sendall(said)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with suppress(OSError):
            one.close()


@contextmanager
def door_to(url: str) -> Iterator[Door]:
    door = Door(url)
    try:
        yield door
    finally:
        door.close()
