"""Order and completeness from the table to the broker, while processes and the broker are killed."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
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
    database = PostgresDatabase(postgres_url)
    database.clear()
    places = RabbitmqPlaces(private_rabbitmq.url)
    queue = places.make()
    outbox = Outbox.ordered(postgres_url, create_schema=True, lock_timeout="2s")
    with outbox.transaction():
        pass  # so that the tables are there
    settled = "SELECT count(*) FROM outbox_event WHERE status = 1"
    with workers(2, postgres_url, private_rabbitmq.url, queue) as team:
        for part in range(faults):
            first, last = events * part // faults, events * (part + 1) // faults
            for start in range(first, last, 100):
                with outbox.transaction():
                    for number in range(start, min(start + 100, last)):
                        outbox.write("It", {"number": number}, key=f"key-{number % keys}")
            _until(database, settled, (first + last) // 2)
            if part == faults // 2:
                private_rabbitmq.stop(immediate=True)
                private_rabbitmq.start()
            else:
                team.kill()
        _until(database, settled, events)
    outbox.close()
    failed = database.read("SELECT count(*) FROM outbox_event WHERE attempts > 0 OR status <> 1")[0][0]
    assert failed == 0, "nothing was wrong with any event"

    arrived: dict[str, list[int]] = {}
    for each in places.stored(queue):
        arrived.setdefault(each.attributes["partitionkey"], []).append(int(each.body[10:-1]))
    numbers = Counter(number for of_key in arrived.values() for number in of_key)
    assert set(numbers) == set(range(events)), "some were lost"
    assert [key for key, of_key in arrived.items() if of_key != sorted(of_key)] == [], "out of order"
    assert sum(numbers.values()) - events <= faults * 2 * IN_FLIGHT, "more came twice than a crash explains"
    database.close()


def _until(database: Any, sql: str, count: int) -> None:
    import threading

    watch, seen, idle = threading.Event(), 0, 0.0
    while seen < count:
        watch.wait(0.02)
        now = database.read(sql)[0][0]
        idle, seen = (0.0 if now > seen else idle + 0.02), now
        assert idle < 3 * PATIENCE, f"{seen} of {count} are done, and no more"
