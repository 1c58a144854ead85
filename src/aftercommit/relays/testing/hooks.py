"""What a broker lends to the suite: a relay to it, places to send to, and a look at what it has stored."""

from __future__ import annotations

import asyncio
import unittest
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from inspect import iscoroutine
from typing import Any

from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.payloads import PayloadTypes
from aftercommit.relays.options import Relaying
from aftercommit.relays.publisher import Entry
from aftercommit.relays.relay import Relay
from aftercommit.relays.testing.wire import Wire


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the broker has it."""

    id: str | None
    body: bytes
    content_type: str | None = None
    #: Those of CloudEvents, by their plain names and with their plain values; empty where there are none.
    attributes: Mapping[str, str] = field(default_factory=dict)
    #: All others that came with it, the broker's own left out.
    headers: Mapping[str, str] = field(default_factory=dict)


class RelayHooks(ABC):
    """One broker, for all tests; each asks for places of its own."""

    #: Whether what is stored first is read first, for messages of one key.
    keeps_order = True

    @property
    @abstractmethod
    def address(self) -> tuple[str, int]:
        """Host and port of the broker."""

    @abstractmethod
    def make_relay(self, host: str, port: int) -> Relay:
        """A relay to the broker at this address, which may be a wire to it. It gives up after a second or two when it
        hears nothing."""

    @abstractmethod
    def make_place(self) -> Any:
        """What `to=` may be: a new and empty place that stores."""

    @abstractmethod
    def stored(self, place: Any) -> list[Stored]:
        """All that the broker has stored there since it was made, in its order. Asked again and again."""

    # ------------------------------------------------------------ where the broker has them

    def make_nowhere(self) -> Any:
        """What `to=` may be, and leads to nobody who would store it."""
        raise unittest.SkipTest("the broker stores whatever it is sent")

    def too_large(self) -> bytes:
        """A payload that the broker refuses for its size."""
        raise unittest.SkipTest("the broker takes all that an outbox can write")

    def restart(self) -> None:
        """Kill the broker, and start it again. What it has confirmed is still there."""
        raise unittest.SkipTest("the broker of these tests cannot be restarted")

    # ------------------------------------------------------------ for the tests

    @contextmanager
    def sending(
        self, place: Any, *, wire: Wire | None = None, ordered: bool = False, **options: Any
    ) -> Iterator[Sending]:
        """A relay in use, as an outbox uses it; closed in the end."""
        host, port = self.address if wire is None else (wire.host, wire.port)
        made = Sending(self.make_relay(host, port), place, ordered=ordered, **options)
        try:
            yield made
        finally:
            made.end()

    @contextmanager
    def wire(self) -> Iterator[Wire]:
        with Wire(*self.address) as made:
            yield made

    def ids(self, place: Any) -> list[str | None]:
        return [each.id for each in self.stored(place)]


class Sending:
    """A relay in use: its messages are made and sent as those of an outbox."""

    def __init__(self, relay: Relay, place: Any, *, ordered: bool, **options: Any) -> None:
        self._made = Relaying(relay, {"to": place, **options}, PayloadTypes(), table="outbox_event", is_ordered=ordered)
        self._runner = asyncio.Runner()

    @property
    def line(self) -> Any:
        return self._made.line

    def send(self, *events: EventEnvelope) -> list[Entry]:
        """What came of each: None when it is confirmed."""
        return list(self.run(self._made.function(list(events))).results)

    def send_at_once(self, *groups: list[EventEnvelope]) -> list[list[Entry]]:
        """Several calls beside each other."""

        async def all_of_them() -> list[Any]:
            calls = (asyncio.to_thread(self._made.function, group) for group in groups)
            given = [self._made.function(group) for group in groups] if self._is_async else await asyncio.gather(*calls)
            return await asyncio.gather(*given) if self._is_async else given

        return [list(each.results) for each in self._runner.run(all_of_them())]

    @property
    def _is_async(self) -> bool:
        return asyncio.iscoroutinefunction(self._made.function)

    def run(self, value: Any) -> Any:
        """Of either colour, on the one loop of this relay."""
        return self._runner.run(value) if iscoroutine(value) else value

    def open(self) -> None:
        self.run(self.line.open())

    def close(self) -> None:
        self.run(self.line.close())

    def end(self) -> None:
        self.close()
        self._runner.close()
