"""Order and completeness from the table to the broker, while processes and the broker are killed."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from aftercommit import Outbox
from tests.brokers import PrivateRabbitmq
from tests.databases import PostgresDatabase
from tests.relays.places import RabbitmqPlaces
from tests.support import PATIENCE

#: Of each worker's: what one handler may have on the way at once, and how many run beside each other.
IN_FLIGHT = 100 * 4


class Workers:
    """Processes that relay. A killed one is replaced."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._running: list[subprocess.Popen[bytes]] = []

    def add(self) -> None:
        self._running.append(subprocess.Popen([sys.executable, "-m", "tests.relays.worker", *self._arguments]))

    def kill(self) -> None:
        first = self._running.pop(0)
        first.kill()
        first.wait()
        self.add()

    def end(self) -> None:
        for each in self._running:
            each.kill()
            each.wait()


@contextmanager
def workers(count: int, *arguments: str) -> Iterator[Workers]:
    made = Workers(*arguments)
    try:
        for _ in range(count):
            made.add()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize(
    ("events", "keys", "faults"),
    [(2_000, 40, 2), pytest.param(20_000, 200, 8, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_nothing_is_lost_and_no_key_is_out_of_order(
    postgres_url: str, private_rabbitmq: PrivateRabbitmq, events: int, keys: int, faults: int
) -> None:
    places = RabbitmqPlaces(private_rabbitmq.url)
    queue = places.make()
    with closing(PostgresDatabase(postgres_url)) as database:
        database.clear()
        outbox = Outbox.ordered(postgres_url, create_schema=True)
        outbox.create_schema()
        with closing(outbox), workers(2, postgres_url, private_rabbitmq.url, queue) as team:
            for part in range(faults):
                first, last = events * part // faults, events * (part + 1) // faults
                write(outbox, range(first, last), keys)
                until_done(database, (first + last) // 2)
                if part == faults // 2:
                    private_rabbitmq.stop(immediate=True)
                    private_rabbitmq.start()
                else:
                    team.kill()
            until_done(database, events)
        failed = database.read("SELECT count(*) FROM outbox_event WHERE attempts > 0 OR status <> 1")[0][0]
    assert failed == 0, "nothing was wrong with any event"

    arrived: dict[str, list[int]] = {}
    for each in places.stored(queue):
        arrived.setdefault(each.attributes["partitionkey"], []).append(int(each.body[10:-1]))
    numbers = Counter(number for of_key in arrived.values() for number in of_key)
    assert set(numbers) == set(range(events)), "some were lost"
    # What was sent and not marked yet comes again from there: 1 2 3 2 3 4. Who drops known ids sees it in order.
    firsts = {key: list(dict.fromkeys(of_key)) for key, of_key in arrived.items()}
    assert [key for key, of_key in firsts.items() if of_key != sorted(of_key)] == [], "out of order"
    assert sum(numbers.values()) - events <= faults * 2 * IN_FLIGHT, "more came twice than a crash explains"


def write(outbox: Outbox, numbers: range, keys: int) -> None:
    for start in numbers[::100]:
        with outbox.transaction():
            for number in range(start, min(start + 100, numbers.stop)):
                outbox.write("It", {"number": number}, key=f"key-{number % keys}")


def until_done(database: Any, count: int) -> None:
    """Until so many are; as long as some more are, now and then."""
    watch, seen, idle = threading.Event(), 0, 0.0
    while seen < count:
        watch.wait(0.02)
        now = database.read("SELECT count(*) FROM outbox_event WHERE status = 1")[0][0]
        idle, seen = (0.0 if now > seen else idle + 0.02), now
        assert idle < 3 * PATIENCE, f"{seen} of {count} are done, and no more"
