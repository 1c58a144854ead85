"""Wake-ups between the processes of one outbox: what this one tells the others, and what it hears from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from aftercommit.delivery.agenda import EVERYWHERE, Agenda
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.pauses import KnownPauses
from aftercommit.events.log import Log
from aftercommit.events.order import OrderKey
from aftercommit.events.redact import error_text
from aftercommit.meter import Meter
from aftercommit.ports import Runtime, Wakeups, WakeupsUnavailable
from aftercommit.service import Repeating, Service

log = Log("aftercommit.wakeups")

#: Seconds between two messages of one process, at least, and in the time that the last one took. A NOTIFY is not free:
#: all that a server has to do stand in one line, and the more there are, the longer each takes.
APART: Final = 0.001
TIMES: Final = 3.0

#: So many keys are told by name. More are told as "everything": whoever hears that finds them, and more, in one look.
KEYS_AT_MOST: Final = 200

#: No store has to carry a longer message.
BYTES_AT_MOST: Final = 7999


class News(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why others should look: for rows of these keys, for anything, for a change of the fleet or of the pauses."""

    sender: str
    keys: frozenset[OrderKey] = frozenset()
    everything: bool = False
    fleet: bool = False
    pauses: bool = False

    def written(self) -> str:
        """As short as it has to be."""
        text = msgspec.json.encode(self)
        if len(text) > BYTES_AT_MOST:
            text = msgspec.json.encode(News(self.sender, everything=True, fleet=self.fleet, pauses=self.pauses))
        return text.decode()

    @classmethod
    def read(cls, message: str) -> News | None:
        """None when it makes no sense here: other releases, and other people, may say other things."""
        try:
            return msgspec.json.decode(message, type=cls)
        except (msgspec.DecodeError, RecursionError, UnicodeError):
            return None


class Announcer(Service):
    """Tells the others. What comes while a message is on its way is merged into the next; what cannot be sent is
    dropped, and the others find it by looking."""

    is_vital = False

    def __init__(self, runtime: Runtime, wakeups: Wakeups, instance_id: str, meter: Meter) -> None:
        super().__init__(runtime, "aftercommit-announcer")
        self._wakeups = wakeups
        self._instance_id = instance_id
        self._meter = meter
        self._rests_until = float("-inf")
        self._forget()

    def _forget(self) -> None:
        self._keys: set[OrderKey] = set()
        self._is_everything = self._is_fleet = self._is_pauses = False

    def tell(self, keys: Iterable[OrderKey]) -> None:
        """There are rows of these. From any thread, at once."""
        with self._new():
            self._keys.update(keys)
            if len(self._keys) > KEYS_AT_MOST:
                self._is_everything = True
                self._keys.clear()

    def tell_everything(self) -> None:
        """There may be rows of any key. From any thread, at once."""
        if self._is_everything:  # it is sent after this, and so after the commit
            return
        with self._new():
            self._is_everything = True

    def tell_fleet(self) -> None:
        """Somebody came, left or gave partitions back. From any thread, at once."""
        with self._new():
            self._is_fleet = True

    def tell_pauses(self) -> None:
        """Something was paused or resumed. From any thread, at once."""
        with self._new():
            self._is_pauses = True

    @contextmanager
    def _new(self) -> Iterator[None]:
        """Under the mutex. Only the first news wakes it: while it rests, there is nothing that it could do."""
        with self.monitor:
            is_first = not self._has_news()
            yield
            if is_first:
                self.monitor.notify_all()

    async def step(self) -> None:
        await self.monitor.wait_for(lambda: self.is_stopping or self._has_news())
        await self.monitor.wait_for(lambda: self.is_stopping, self._rests_until - self.runtime.clock())
        await self._speak()

    async def _run(self) -> None:
        await super()._run()
        await self._speak()  # what was told last: that this instance is leaving

    def _has_news(self) -> bool:
        return bool(self._keys) or self._is_everything or self._is_fleet or self._is_pauses

    async def _speak(self) -> None:
        with self.monitor:
            if not self._has_news():
                return
            keys = frozenset() if self._is_everything else frozenset(self._keys)
            news = News(self._instance_id, keys, self._is_everything, self._is_fleet, self._is_pauses)
            self._forget()
        began = self.runtime.clock()
        await self.say(news)
        now = self.runtime.clock()
        self._rests_until = now + max(APART, TIMES * (now - began))

    async def say(self, news: News) -> None:
        """At once, whether this runs or not."""
        try:
            await self._wakeups.send(news.written())
            self._meter.count("wakeups_sent")
        except Exception as error:
            if self._meter.may_say("wakeups"):
                log.warning("other instances could not be woken, and will look by themselves: %s", error_text(error))


class WakeupListener(Service):
    """Hears the others, and passes on what they say: to the agenda what to look at, to the fleet its changes."""

    is_vital = False

    def __init__(
        self,
        runtime: Runtime,
        wakeups: Wakeups,
        instance_id: str,
        meter: Meter,
        agenda: Agenda,
        ownership: Ownership,
        fleet: Repeating | None,
        pauses: KnownPauses | None = None,
    ) -> None:
        """`fleet`, where there is one, is called when somebody came or left; `pauses` when they have changed."""
        super().__init__(runtime, "aftercommit-listener")
        self._wakeups = wakeups
        self._instance_id = instance_id
        self._meter = meter
        self._agenda = agenda
        self._ownership = ownership
        self._fleet = fleet
        self._pauses = pauses

    async def step(self) -> None:
        try:
            messages = await self._wakeups.receive()
        except WakeupsUnavailable as reason:
            log.warning("other instances cannot wake this one, which finds their events by polling: %s", reason)
            self.is_stopping = True
            return
        if messages:
            self._pass_on(messages)
        elif not self.is_stopping:  # it has only now begun to listen
            self._agenda.add(EVERYWHERE)
            self._fleet_changed()
            self._pauses_changed()

    def _pass_on(self, messages: Iterable[str]) -> None:
        read = [news for news in map(News.read, messages) if news is not None and news.sender != self._instance_id]
        self._meter.count("wakeups_received", len(read))
        if any(news.everything for news in read):
            self._agenda.add(EVERYWHERE)
        owned = self._ownership.owned
        if keys := {key for news in read for key in news.keys if key.partition in owned}:
            self._agenda.add(keys)
        if any(news.fleet for news in read):
            self._fleet_changed()
        if any(news.pauses for news in read):
            self._pauses_changed()

    def _fleet_changed(self) -> None:
        if self._fleet is not None:
            self._fleet.call()

    def _pauses_changed(self) -> None:
        if self._pauses is not None:
            self._pauses.call()

    async def stop(self, timeout: float | None = None) -> bool:
        self.is_stopping = True  # before the interrupt, which is heard once
        self._wakeups.interrupt()
        return await super().stop(timeout)

    async def _run(self) -> None:
        try:
            await super()._run()
        finally:
            await self._wakeups.close()
