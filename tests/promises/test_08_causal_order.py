"""Promise 8: what one process writes after another's commit comes after it, whatever their clocks say."""

from __future__ import annotations

import pytest

from tests.promises import skew
from tests.promises.harness import Process
from tests.promises.ordered import OrderedFleet

#: By so many seconds the clock of one writer is fast.
SECONDS = 7

KEYS = [f"key-{number}" for number in range(5)]
ROUNDS = 20


def fast(ordered: OrderedFleet, way: str) -> dict[str, object]:
    """How a process with a wrong clock is born."""
    environment = {skew.PATCHED: str(SECONDS)}
    if way == "shimmed":
        shim = skew.built_shim(ordered.fleet.folder)
        if shim is None:
            pytest.skip("no C compiler, or a system on which the shim does not work")
        environment = {"LD_PRELOAD": str(shim), skew.SHIMMED: str(SECONDS)}
    return {"environment": environment, "is_fresh": True}


def differ(early: Process, late: Process) -> None:
    """The fault is there: what the two take the time to be, one asked after the other."""
    clocks = [writer.tell("clocks")["library"] for writer in (late, early)]
    assert clocks[1] - clocks[0] == pytest.approx(SECONDS, rel=0.5)


@pytest.mark.parametrize(
    ("fleet", "way", "runtime"),
    [
        ("postgres", "patched", "threads"),
        ("mariadb", "shimmed", "asyncio"),
        ("redis", "patched", "threads"),
        pytest.param("postgres", "shimmed", "asyncio", marks=pytest.mark.slow),
        pytest.param("mariadb", "patched", "threads", marks=pytest.mark.slow),
        pytest.param("redis", "shimmed", "asyncio", marks=pytest.mark.slow),
    ],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_is_causal_between_writers_whose_clocks_differ(
    ordered: OrderedFleet, way: str, runtime: str
) -> None:
    """Each waits for the other's commit. By their clocks, and by their event ids, the order would be another."""
    writers = [ordered.writer(runtime, birth=fast(ordered, way)), ordered.writer(runtime)]
    differ(*writers)
    for number in range(ROUNDS):
        if number == ROUNDS // 2:  # the first half waits for instances, the second is delivered as it is written
            for member in ("threads", "asyncio"):
                ordered.join(member)
        for key in KEYS:
            writers[number % 2].tell("write_key", key=key, numbers=[2 * number, 2 * number + 1])
    ordered.until_settled(2 * ROUNDS * len(KEYS))

    ordered.all_delivered_in_order()
    assert ordered.written() == {key: list(range(2 * ROUNDS)) for key in KEYS}
    for clock in ("occurred_at", "event_id"):
        rows = ordered.fleet.rows(f"SELECT position FROM outbox_event ORDER BY {clock}")
        assert [row["position"] for row in rows] != sorted(row["position"] for row in rows)
