"""A wire between a fleet and its server that breaks while a COMMIT is on it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from tests.promises.listener import EVENT

#: How a COMMIT ends, as PostgreSQL and as MySQL are told of it; READ COMMITTED ends otherwise.
COMMITS = (b"COMMIT\x00", b"\x03COMMIT")


class Toll:
    """Every n-th passes no more: in turns it is not heard, and heard but not answered."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = self.unheard = self.unanswered = 0

    def fate(self) -> str:
        self._seen += 1
        if self._seen % self._every:
            return "goes on"
        if self.unheard <= self.unanswered:
            self.unheard += 1
            return "unheard"
        self.unanswered += 1
        return "unanswered"


class Proxy:
    """Breaks every n-th COMMIT of those that write events, and every n-th of the others: in turns before the server
    hears of it, and when it has been done but not answered. Were they counted together, one kind might always meet the
    same fate. Who says the type of an event writes one: nobody else has to."""

    def __init__(self, url: str, *, every: int) -> None:
        parts = urlsplit(url)
        self._behind = (parts.hostname, parts.port)
        self.written, self.others = Toll(every), Toll(every)
        self._lock = threading.Lock()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{parts.port}/", f":{self._listening.getsockname()[1]}/")
        if parts.scheme.startswith("mysql"):
            self.url += "?ssl=false"  # PyMySQL encrypts where the server can, and a COMMIT could not be read
        self.is_whole = False
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                Wire(self, self._listening.accept()[0], socket.create_connection(self._behind))

    def fate_of_commit(self, *, writes: bool) -> str:
        """What becomes of it."""
        with self._lock:
            return "goes on" if self.is_whole else (self.written if writes else self.others).fate()


class Wire:
    """One connection."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._writes = self._is_mute = False
        for pump in (self._up, self._down):
            threading.Thread(target=self._pumped, args=(pump,), daemon=True).start()

    def _pumped(self, pump: Callable[[], None]) -> None:
        try:
            with contextlib.suppress(OSError):
                pump()
        finally:
            for end in (self._client, self._server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()

    def _up(self) -> None:
        while data := self._client.recv(65536):
            self._writes = self._writes or EVENT.encode() in data
            if any(commit in data for commit in COMMITS):
                fate = self._proxy.fate_of_commit(writes=self._writes)
                if fate == "unheard":
                    return
                self._is_mute = self._is_mute or fate == "unanswered"
                self._writes = False
            self._server.sendall(data)

    def _down(self) -> None:
        while data := self._server.recv(65536):
            if self._is_mute:
                return
            self._client.sendall(data)
