"""A wire to the broker on which its answers can be held back: what was sent arrives, and nobody hears that it has."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from urllib.parse import urlsplit


class Wire:
    """`url` leads to the broker over a port of ours. From the first message that has `said` in it on, the broker is not
    heard any more."""

    def __init__(self, broker: str, said: bytes) -> None:
        parts = urlsplit(broker)
        self._there = (parts.hostname or "127.0.0.1", parts.port or 5672)
        self._said = said
        self.was_said = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        login, at, _ = parts.netloc.rpartition("@")
        self.url = parts._replace(netloc=f"{login}{at}127.0.0.1:{self._server.getsockname()[1]}").geturl()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(self._there)
                for ends in ((client, broker), (broker, client)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        is_ours = source.getsockname()[1] == self._server.getsockname()[1]
        with suppress(OSError):
            while part := source.recv(65536):
                if is_ours and self._said in part:
                    self.was_said.set()  # before the broker can answer
                if is_ours or not self.was_said.is_set():
                    sink.sendall(part)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
