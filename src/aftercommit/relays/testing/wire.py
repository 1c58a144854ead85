"""A wire between a relay and its broker that a test can cut, mute and mend."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

#: Seconds for a connection to the broker behind it.
PATIENCE = 10.0


class Wire:
    """A TCP port of this machine that leads to the broker."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listening.getsockname()[:2]
        self._is_refusing = False
        self._swallows = False
        self._cut_after: int | None = None
        #: What has gone up, and how many connections were made: proof that a fault has met somebody.
        self.sent = 0
        self.made = 0
        self.swallowed = threading.Event()
        #: Connections that there are, and whether there are none.
        self.open = 0
        self.closed = threading.Event()
        threading.Thread(target=self._accept, name="wire", daemon=True).start()

    def cut(self) -> None:
        """All connections end now, without a word."""
        with self._lock:
            ends, self._ends = self._ends, []
        for end in ends:
            _end(end)

    def cut_after(self, count: int) -> None:
        """All connections end when so many more bytes have gone to the broker."""
        with self._lock:
            self._cut_after = self.sent + count

    def refuse(self) -> None:
        """As if the broker were away."""
        self._is_refusing = True
        self.cut()

    def swallow(self) -> None:
        """What the broker says is lost from now on, on the connections that there are."""
        self.swallowed.clear()
        self._swallows = True

    def mend(self) -> None:
        """New connections are as good as ever."""
        self._is_refusing = self._swallows = False
        with self._lock:
            self._cut_after = None

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                if self._is_refusing:
                    _end(client)
                    continue
                try:
                    server = socket.create_connection(self._behind, PATIENCE)
                    server.settimeout(None)
                except OSError:
                    _end(client)
                    continue
                with self._lock:
                    self.made += 1
                    self.open += 1
                    self.closed.clear()
                    self._ends += [client, server]
                for pump in (self._up, self._down):
                    threading.Thread(target=pump, args=(client, server), name="wire", daemon=True).start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                with self._lock:
                    limit = self._cut_after
                    rest = None if limit is None else max(0, limit - self.sent)
                    self.sent += len(data)
                if rest is not None and len(data) > rest:
                    server.sendall(data[:rest])
                    self.mend()
                    self.cut()
                    break
                server.sendall(data)
        _end(client)
        _end(server)
        with self._lock:
            self.open -= 1
            if not self.open:
                self.closed.set()

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._swallows:
                    self.swallowed.set()
                    while server.recv(65536):
                        pass
                    break
                client.sendall(data)
        _end(client)
        _end(server)


def _end(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
