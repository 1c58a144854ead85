"""Promise 8: order per key while instances come, go, die and freeze, and handlers fail."""

from __future__ import annotations

import pytest

from tests.promises.ordered import BUSY, OrderedFleet
from tests.promises.torture import Torture

#: In the long form.
EVENTS, KEYS = 200_000, 1000


@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)
def test_promise_08_order_per_key_survives_instances_that_join_leave_die_and_freeze(ordered: OrderedFleet) -> None:
    torture = Torture(ordered, keys=100, seed=8)
    torture.join()
    torture.write(at_least=3000, together=8, pause=0.02)
    torture.join()
    torture.join()
    torture.kill()
    torture.freeze()
    torture.leave()
    torture.join()
    torture.kill()
    total = torture.end(timeout=60)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    assert len({effect.pid for effect in ordered.effects.all()}) > 2, "several instances have delivered"


@pytest.mark.parametrize("fleet", ["postgres"], indirect=True)
def test_promise_08_order_per_key_survives_when_instances_deliver_what_they_write(ordered: OrderedFleet) -> None:
    """serialize_keys: the first event of a key is born leased where its partition is owned, and partitions move."""
    torture = Torture(ordered, keys=100, seed=12, serialize_keys=True)
    torture.join_authors()
    torture.write(at_least=3000, together=8, pause=0.02)
    torture.join()
    torture.join()
    torture.kill()
    torture.freeze()
    torture.leave()
    torture.join()
    torture.kill()
    total = torture.end(timeout=60)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    for author in torture.authors:
        assert author.count("hot_enqueued") > 0, "the first events of keys have come from memory"
        assert author.count("cold_enqueued") > 0


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    ("fleet", "options"),
    [("postgres", {}), ("postgres", {"serialize_keys": True}), ("mariadb", {}), ("redis", {})],
    ids=["postgres", "postgres-serialized", "mariadb", "redis"],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_survives_a_long_torture(ordered: OrderedFleet, options: dict[str, object]) -> None:
    ordered.times = BUSY
    ordered.open_gate()  # the writers stop as soon as they have written enough
    torture = Torture(ordered, keys=KEYS, seed=EVENTS, **options)
    if options:
        torture.join_authors()
    torture.join()
    torture.write(at_least=EVENTS, together=50, pause=0.05)
    while not torture.has_delivered(EVENTS * 9 // 10):
        torture.anything()
    total = torture.end(timeout=900)

    torture.every_partition_has_one_owner_that_lives()
    ordered.all_delivered_in_order()
    torture.handlers_have_failed(total)
    assert total >= EVENTS
    assert len(torture.faults) == 5
    assert min(torture.faults.values()) > 2, torture.faults
