"""Wake-ups: what a process tells the others is merged and never waited for; what it hears is passed on once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aftercommit.delivery.agenda import EVERYWHERE, Place
from aftercommit.delivery.ownership import Ownership
from aftercommit.delivery.wakeups import (
    APART,
    BYTES_AT_MOST,
    KEYS_AT_MOST,
    TIMES,
    Announcer,
    News,
    WakeupListener,
)
from aftercommit.events.order import OrderKey
from aftercommit.ports import WakeupsUnavailable
from tests.delivery.faulty import (
    count_from_here,  # noqa: F401  (used by every test here)
    meter_of,
    other_tasks,
    ours,
    short_pauses,  # noqa: F401  (used by every test here)
    with_runtime,
)
from tests.support import PATIENCE, Collector, Signal, World

ALICE, BOB = "alice", "bob"


class Line:
    """Wake-ups as a test hears and says them: what was sent, and what is to be received."""

    def __init__(self, runtime: Any) -> None:
        self.sent = Collector()
        self.times: list[float] = []
        self.ends: list[float] = []
        self.takes = 0.0
        self.fails: list[Exception] = []
        self.is_closed = False
        self.waits = Collector()
        self.gate: Signal | None = None
        self._runtime = runtime
        self._monitor = runtime.monitor()
        self._incoming: list[list[str] | Exception] = []

    async def send(self, message: str) -> None:
        self.times.append(self._runtime.clock())
        self.sent.add(message)
        if self.gate is not None:
            await self.gate.wait()
        if self.fails:
            raise self.fails.pop(0)
        while self._runtime.clock() < self.times[-1] + self.takes:
            pass
        self.ends.append(self._runtime.clock())

    async def receive(self) -> list[str]:
        self.waits.add(None)
        given = await self._monitor.wait_for(lambda: (self._incoming and self._incoming.pop(0)) or None)
        if isinstance(given, Exception):
            raise given
        return [] if given == ["interrupt"] else given

    def comes(self, *given: News | str) -> None:
        self._put([each if isinstance(each, str) else each.written() for each in given])

    def _put(self, given: list[str] | Exception) -> None:
        with self._monitor:
            self._incoming.append(given)
            self._monitor.notify_all()

    def begins(self) -> None:
        """As a port does that has just begun to listen."""
        self._put(["interrupt"])

    def breaks(self, error: Exception) -> None:
        self._put(error)

    def interrupt(self) -> None:
        self._put(["interrupt"])

    async def close(self) -> None:
        self.is_closed = True

    def abandon(self) -> None: ...

    @property
    def news(self) -> list[News]:
        read = [News.read(message) for message in self.sent]
        assert None not in read
        return read  # type: ignore[return-value]


def key(number: int, size: int = 0) -> OrderKey:
    return OrderKey(number % 256, f"key-{number}".ljust(size, "x"))


def announcer_of(runtime: Any, line: Line) -> Announcer:
    return Announcer(runtime, line, ALICE, meter_of(runtime))


class Heard:
    """Who is called by a listener."""

    def __init__(self, runtime: Any, line: Line) -> None:
        self.calls = Collector()
        self.meter = meter_of(runtime)
        told: Any = self
        self.listener = WakeupListener(runtime, line, BOB, self.meter, told, Ownership(runtime), told)

    def add(self, place: Place) -> bool:
        """As an agenda."""
        self.calls.add("everything" if place is EVERYWHERE else sorted(place))
        return True

    def call(self) -> None:
        """As a coordinator."""
        self.calls.add("fleet")


# ---------------------------------------------------------------- telling


def test_what_is_told_while_a_message_is_on_its_way_goes_into_one_more(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        line.gate = Signal()
        announcer = announcer_of(runtime, line)
        announcer.start()
        announcer.tell([key(0)])
        await line.sent.reach(1)
        for number in range(1, 101):  # at once, although the first message hangs
            announcer.tell([key(number)])
        announcer.tell_fleet()
        line.gate.set()
        await line.sent.reach(2)
        assert await announcer.stop(PATIENCE)
        first, second = line.news
        assert first == News(ALICE, frozenset({key(0)}))
        assert second == News(ALICE, frozenset(map(key, range(1, 101))), fleet=True)

    with_runtime(world, scenario)
    assert not ours()


@pytest.mark.parametrize("takes", [0.0, APART], ids=["quick", "slow"])
def test_messages_keep_their_distance(world: World, takes: float) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        line.takes = takes
        announcer = announcer_of(runtime, line)
        announcer.start()
        for number in range(5):
            announcer.tell([key(number)])
            await line.sent.reach(number + 1)
        assert await announcer.stop(PATIENCE)
        gaps = [later - earlier for earlier, later in zip(line.ends, line.times[1:], strict=False)]
        assert len(gaps) == 4
        least = max(APART, TIMES * takes)
        assert min(gaps) >= least * 0.9, "the waiting room's clock is not the runtime's"

    with_runtime(world, scenario)


def test_many_who_tell_wake_it_once(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        announcer = announcer_of(runtime, line)
        woken = Collector()
        notify = announcer.monitor.notify_all
        announcer.monitor.notify_all = lambda: (woken.add(None), notify())  # type: ignore[method-assign]
        for number in range(100):
            announcer.tell([key(number)])
            announcer.tell_everything()
            announcer.tell_fleet()
        assert len(woken) == 1
        announcer.start()
        await line.sent.reach(1)
        announcer.tell_everything()
        assert len(woken) == 2, "what is told after a message needs another one"
        await line.sent.reach(2)
        assert await announcer.stop(PATIENCE)

    with_runtime(world, scenario)


@pytest.mark.parametrize(
    "keys",
    [[key(number) for number in range(KEYS_AT_MOST + 1)], [key(number, 255) for number in range(40)]],
    ids=["many", "long"],
)
def test_more_keys_than_a_message_holds_are_everything(world: World, keys: list[OrderKey]) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        announcer = announcer_of(runtime, line)
        announcer.tell(keys)
        announcer.tell([key(1)])
        announcer.tell_fleet()
        announcer.start()
        await line.sent.reach(1)
        assert await announcer.stop(PATIENCE)
        assert line.news == [News(ALICE, everything=True, fleet=True)]
        assert len(line.sent[0].encode()) <= BYTES_AT_MOST

    with_runtime(world, scenario)


def test_everything_leaves_no_key_to_be_named(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        announcer = announcer_of(runtime, line)
        announcer.tell([key(1)])
        announcer.tell_everything()
        announcer.start()
        await line.sent.reach(1)
        assert await announcer.stop(PATIENCE)
        assert line.news == [News(ALICE, everything=True)]

    with_runtime(world, scenario)


def test_a_message_that_cannot_be_sent_is_dropped_and_said_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(runtime: Any) -> dict[str, int]:
        line = Line(runtime)
        line.fails = [OSError("gone, with password=abc123"), OSError("gone")]
        announcer = announcer_of(runtime, line)
        announcer.start()
        for number in range(3):
            announcer.tell([key(number)])
            await line.sent.reach(number + 1)
        assert await announcer.stop(PATIENCE)
        assert [news.keys for news in line.news] == [{key(0)}, {key(1)}, {key(2)}]
        return announcer._meter.counts()

    with caplog.at_level(logging.INFO, "aftercommit"):
        counts = with_runtime(world, scenario)
    assert counts == {"wakeups_sent": 1}
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "could not be woken" in record.message
    assert "abc123" not in record.message


def test_the_last_words_are_sent_before_the_end(world: World) -> None:
    """Also those that were told while another message was on its way."""

    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        line.gate = Signal()
        announcer = announcer_of(runtime, line)
        announcer.start()
        announcer.tell([key(1)])
        await line.sent.reach(1)
        announcer.tell_fleet()
        assert not await announcer.stop(0)
        line.gate.set()
        assert await announcer.stop(PATIENCE)
        assert line.news[1:] == [News(ALICE, fleet=True)]

    with_runtime(world, scenario)


# ---------------------------------------------------------------- hearing


def test_what_others_say_is_passed_on_merged_and_ones_own_is_not(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        heard = Heard(runtime, line)
        heard.listener.start()
        line.comes(News(BOB, frozenset({key(9)}), everything=True, fleet=True))
        line.comes(News(ALICE, frozenset({key(1), key(2)})), News("carol", frozenset({key(2), key(3)})))
        line.comes(News(ALICE, everything=True), News(ALICE, fleet=True))
        await heard.calls.reach(3)
        assert await heard.listener.stop(PATIENCE)
        assert heard.calls == [[key(1), key(2), key(3)], "everything", "fleet"]
        assert heard.meter.counts()["wakeups_received"] == 4
        assert line.is_closed

    with_runtime(world, scenario)
    assert not ours()


@pytest.mark.parametrize(
    "message",
    [
        *("", "not JSON", "null", "[]", "7", "{}", '{"sender": 7}', '{"sender": "alice", "keys": 7}'),
        *('{"sender": "alice", "keys": [[1]]}', '{"sender": "alice", "keys": [["1", "k"]]}'),
        '{"sender": "alice", "odd": ' + "[" * 3900 + "]" * 3900 + "}",
    ],
)
def test_what_makes_no_sense_is_passed_over(world: World, message: str) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        heard = Heard(runtime, line)
        heard.listener.start()
        line.comes(message, News(ALICE, frozenset({key(1)})))
        line.comes(message)
        line.comes('{"sender": "alice", "fleet": true, "of a later release": [1]}')
        await heard.calls.reach(2)
        assert await heard.listener.stop(PATIENCE)
        assert heard.calls == [[key(1)], "fleet"]
        assert heard.listener.failures_in_a_row == 0

    with_runtime(world, scenario)


def test_whoever_begins_to_listen_looks_at_everything(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """At first, and after the connection was lost: what was said meanwhile was missed."""

    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        heard = Heard(runtime, line)
        heard.listener.start()
        line.begins()
        await heard.calls.reach(2)
        line.breaks(OSError("cut"))
        line.begins()
        await heard.calls.reach(4)
        line.comes(News(ALICE, frozenset({key(1)})))
        await heard.calls.reach(5)
        assert await heard.listener.stop(PATIENCE)
        assert heard.calls == ["everything", "fleet", "everything", "fleet", [key(1)]]

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"], "away, and back"


def test_where_nothing_can_be_heard_it_is_said_once_and_the_listener_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        heard = Heard(runtime, line)
        heard.listener.start()
        line.breaks(WakeupsUnavailable("a pooler"))
        assert await heard.listener._task.join(PATIENCE)  # type: ignore[union-attr]
        assert (len(line.waits), list(heard.calls), line.is_closed) == (1, [], True)
        assert not heard.listener.is_running
        assert await heard.listener.stop(PATIENCE)
        assert not other_tasks()

    with caplog.at_level(logging.INFO, "aftercommit"):
        with_runtime(world, scenario)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "a pooler" in record.message
    assert "polling" in record.message


def test_a_listener_that_waits_ends_at_once(world: World) -> None:
    async def scenario(runtime: Any) -> None:
        line = Line(runtime)
        heard = Heard(runtime, line)
        heard.listener.start()
        await line.waits.reach(1)
        assert await heard.listener.stop(PATIENCE)
        assert line.is_closed
        assert not heard.calls
        assert not other_tasks()

    with_runtime(world, scenario)
    assert not ours()
