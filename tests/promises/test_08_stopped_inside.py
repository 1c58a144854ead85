"""Promise 8: an instance that stops inside a transaction keeps neither partitions nor events from the others."""

from __future__ import annotations

import signal

import pytest

from tests.promises.faults import STOP
from tests.promises.ordered import OrderedFleet
from tests.promises.waiting import until

KEYS = [f"key-{number}" for number in range(20)]

#: The point, and which time that it is passed.
POINTS = ["in beat:5", "in run:1"]


def write(ordered: OrderedFleet, numbers: list[int]) -> None:
    writer = ordered.writer()
    for key in KEYS:
        writer.tell("write_key", key=key, numbers=numbers)
    writer.finish()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize(
    ("fleet", "runtime"),
    [
        ("postgres", "threads"),
        ("mariadb", "asyncio"),
        pytest.param("postgres", "asyncio", marks=pytest.mark.slow),
        pytest.param("mariadb", "threads", marks=pytest.mark.slow),
    ],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_an_instance_that_stops_inside_a_transaction_is_replaced(
    ordered: OrderedFleet, runtime: str, point: str
) -> None:
    write(ordered, [0, 1, 2])
    stopped = ordered.process(runtime, birth={"environment": {STOP: point}})
    stopped.send("start")
    until(lambda: ordered.journal.lines("crash"), what=f"an instance that stops {point}")

    other = ordered.join(runtime)
    with ordered.taken_over():
        write(ordered, [3, 4, 5])
    ordered.until_settled(6 * len(KEYS))
    assert not ordered.fleet.rows("SELECT 1 FROM outbox_event WHERE locked_by IS NOT NULL")

    stopped.signal(signal.SIGCONT)
    owner = stopped.answer()
    until(lambda: set(ordered.owners().values()) == {owner, other.id}, what="a fleet of two")
    write(ordered, [6, 7, 8])
    ordered.until_settled(9 * len(KEYS))
    ordered.all_delivered_in_order()
    assert ordered.effects.count(stopped.pid), "it takes part again"
