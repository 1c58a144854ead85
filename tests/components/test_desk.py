"""Leases that handlers of pollers have in their hands are bounded, and forgotten when they are over."""

from __future__ import annotations

from aftercommit import EventEnvelope
from aftercommit.components.desk import AT_MOST, Desk
from aftercommit.events.claims import Claimed, Lease, RowKey


def claimed(deadline: float, handler_id: str = "", event: EventEnvelope | None = None) -> Claimed:
    event = event or EventEnvelope("Happened", payload_json="{}")
    return Claimed(event, Lease(RowKey(event.event_id, handler_id), "me", 1, deadline), 0, None)


def test_there_is_room_again_when_leases_are_over() -> None:
    desk = Desk()
    for number in range(3):
        desk.hand_out(claimed(10.0 + number))
    assert [desk.room(now) for now in (9.0, 10.0, 11.5, 12.0)] == [AT_MOST - 3, AT_MOST - 2, AT_MOST - 1, AT_MOST]


def test_a_lease_is_taken_once() -> None:
    desk, row = Desk(), claimed(10.0)
    desk.hand_out(row)
    assert desk.take(row.event.event_id) is row
    assert desk.take(row.event.event_id) is None
    assert not desk.take_back(row)
    desk.hand_out(row)
    assert desk.take_back(row)


def test_rows_of_one_event_for_several_handlers_are_taken_one_after_the_other() -> None:
    desk, event = Desk(), EventEnvelope("Happened", payload_json="{}")
    rows = [claimed(10.0, name, event) for name in ("a", "b")]
    for row in rows:
        desk.hand_out(row)
    assert [desk.take(event.event_id) for _ in range(3)] == [*rows, None]
