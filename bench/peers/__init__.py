"""Other libraries on the same work, through their public interface, at their best documented settings.

Each takes part when it is installed. Ours and the hand-written loop stand beside them in the same rounds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

from bench.peers.peer import Peer
from bench.results import Line
from bench.rounds import Rival
from bench.servers.places import Absent, Postgres

T = TypeVar("T")

#: The class of each, in the module of the library's name.
_CLASSES: Final = {
    "txoutbox": "Txoutbox",
    "pgqueuer": "Pgqueuer",
    "faststream_outbox": "FaststreamOutbox",
    "procrastinate": "Procrastinate",
    "oban": "Oban",
}


def peer(name: str, place: Postgres) -> Peer:
    logging.getLogger(name).setLevel(logging.ERROR)
    made: Peer = getattr(import_module(f"bench.peers.with_{name}"), _CLASSES[name])(place)
    return made


def strict(place: Postgres) -> Peer:
    """The one of them that keeps events of a key in order."""
    if not find_spec("txoutbox"):
        raise Absent("txoutbox is not installed")
    from bench.peers.with_txoutbox import Strict  # noqa: PLC0415

    return Strict(place)


class Guests:
    """Those that are installed, with their tables made. One that breaks is left out from then on; the others go on."""

    def __init__(self, place: Postgres) -> None:
        self.broken: dict[str, str] = {}
        self.here: dict[str, Peer] = {}
        for name in _CLASSES:
            if find_spec(name):
                with self._noting(name):
                    each = peer(name, place)
                    asyncio.run(each.set_up())
                    self.here[name] = each
        if not self.here:
            raise Absent(f"none is installed: {', '.join(_CLASSES)}; {self.broken or 'make bench-peers installs them'}")

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.broken[name] = f"{type(error).__name__}: {error}".splitlines()[0]

    def guarded(self, name: str, rival: Rival[T]) -> Rival[T | None]:
        def once(folder: Path) -> T | None:
            found = None
            if name not in self.broken:
                with self._noting(name):
                    found = rival(folder)
            return found

        return once

    def whole(self) -> list[str]:
        """Those that went through all their rounds."""
        return [name for name in self.here if name not in self.broken]

    def noted(self, lines: list[Line]) -> list[Line]:
        """Who was left out is told with the first line."""
        if not lines or not self.broken:
            return lines
        return [replace(lines[0], details={**lines[0].details, "broken": self.broken}), *lines[1:]]
