"""Found because it is called handlers.py."""

from __future__ import annotations

from aftercommit import EventEnvelope, NoRetry
from aftercommit.django import outbox, outbox_for

received: list[str] = []

#: Whether `fragile` has what it needs.
paper: list[bool] = []


@outbox.handler("Discovered")
def discovered(event: EventEnvelope) -> None:
    received.append(event.event_id)


def fragile(event: EventEnvelope) -> None:
    if not paper:
        raise ValueError("no paper")


for each in (outbox, outbox_for("second")):
    each.handler("Fragile", retry=NoRetry())(fragile)
