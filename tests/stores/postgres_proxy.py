"""A wire to PostgreSQL that can be cut in the middle of a COMMIT, or go dead."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from math import inf
from typing import Any
from urllib.parse import urlsplit

#: The messages of the simple protocol that commit.
COMMIT = (b"COMMIT\x00", b"COMMIT;\x00")


class Proxy:
    """Passes everything on. `cut_commit` ends one session at its COMMIT; `freeze` lets sessions be, and passes nothing
    on any more."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        login = f"{parts.username}:{parts.password}@" if parts.password else f"{parts.username}@"
        self.url = parts._replace(netloc=f"{login}127.0.0.1:{self._listener.getsockname()[1]}").geturl()
        #: How the next COMMIT of a session that has said certain words is cut.
        self._cut: tuple[str, bytes] | None = None
        self.cuts = 0
        self._sessions = 0
        self._frozen: float = 0
        #: Whether clients are told of another process than the one that serves them, as poolers do.
        self.poses = False
        #: What was said on frozen sessions.
        self.unheard: list[bytes] = []
        self._threads = [self._start(self._accept)]

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def cut_commit(self, how: str, of: bytes) -> None:
        """Cut the transaction that says these words, and nobody else's: `how` is "before", and the server hears no
        COMMIT, or "after", and it has answered, but nobody hears the answer."""
        self._cut = (how, of)

    def freeze(self, *, new_ones: bool = False) -> None:
        """All sessions that there are, as if a firewall had forgotten them; or nobody gets through any more."""
        self._frozen = inf if new_ones else self._sessions

    def _start(self, work: Any, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sessions += 1
                self._threads.append(self._start(self._listen, self._sessions, client, server))

    def _listen(self, number: int, client: socket.socket, server: socket.socket) -> None:
        """One session: what the client says is looked at, what the server says is passed on."""
        is_cut, how = threading.Event(), None
        answers = self._start(self._answer, number, server, client, is_cut)
        with suppress(OSError):
            while said := client.recv(65536):
                if number <= self._frozen:
                    self.unheard.append(said)
                    continue
                if self._cut is not None and self._cut[1] in said:
                    (how, _), self._cut = self._cut, None
                if how is not None and any(words in said for words in COMMIT):
                    is_cut.set()
                    self.cuts += 1
                    if how == "after":
                        server.sendall(said)
                        answers.join(5)
                    break
                server.sendall(said)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        answers.join(5)

    def _answer(self, number: int, server: socket.socket, client: socket.socket, is_cut: threading.Event) -> None:
        with suppress(OSError):
            while said := server.recv(65536):
                if number <= self._frozen:
                    continue
                if is_cut.is_set():
                    return
                client.sendall(posing(said) if self.poses else said)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


def posing(said: bytes) -> bytes:
    """The number of the process, at the end of a login, is another one."""
    before, key_data, behind = said.partition(b"K\x00\x00\x00\x0c")
    return before + key_data + (b"\x00\x00\x00\x07" + behind[4:] if key_data else b"")
