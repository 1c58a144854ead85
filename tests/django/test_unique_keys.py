"""`unique_key=` in atomic blocks, on every database: the INSERT runs on Django's own connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import transaction

from aftercommit import EventEnvelope
from aftercommit.runtime.threads import run
from tests.support import Collector


def test_a_taken_key_keeps_an_event_out_of_an_atomic_block(alias: str, make_outbox: Callable[..., Any]) -> None:
    outbox, seen = make_outbox(alias, worker_count=1, poller_enabled=False), Collector()
    outbox.register("Placed", lambda event: seen.add(event.payload_json))
    outbox.start()
    batch = [EventEnvelope("Placed", payload_json=str(number), unique_key=key) for number, key in ((3, "k"), (4, "z"))]
    with transaction.atomic(using=alias):
        assert outbox.write("Placed", 1, unique_key="k") is not None
        assert outbox.write("Placed", 2, unique_key="k") is None
        assert outbox.write_all(batch) == [batch[1].event_id]
        assert outbox.write("Placed", 5) is not None, "and the transaction goes on"
    run(seen.reach(3))
    assert sorted(seen) == ["1", "4", "5"]
    assert outbox._engine.dispatcher.lanes._reserved == 0
