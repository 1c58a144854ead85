"""Handlers from end to end: typed, by name and generic; a retry, a fallback, context. Needs nothing but the package.

python examples/handlers.py
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aftercommit import (
    EventEnvelope,
    EventMetadata,
    FailureContext,
    Fixed,
    HandlerSet,
    Outbox,
    any_event,
    current_context,
)

#: Failed attempts are warnings; here they are part of the play.
logging.getLogger("aftercommit").setLevel(logging.CRITICAL)


@dataclass
class OrderPlaced:
    order_id: int
    total: int


#: A module of handlers needs no outbox: the program includes the set where it builds one.
handlers = HandlerSet()


@handlers.handler
def send_receipt(event: OrderPlaced, meta: EventMetadata) -> None:
    print(f"receipt for order {event.order_id}, asked by {meta.context['user']}")


@handlers.handler(retry=Fixed("10ms", max_attempts=3), timeout="5s", concurrency=2)
async def charge_card(event: OrderPlaced) -> None:
    raise ConnectionError(f"no answer about {event.total}")


@charge_card.fallback
def open_ticket(event: OrderPlaced, failure: FailureContext) -> None:
    print(f"ticket for order {event.order_id} after {failure.failure_count} attempts: {failure.last_error}")


@handlers.handler("order.legacy", id="legacy")
def legacy(event: EventEnvelope) -> None:
    print("legacy", event.payload_json)


class Audit:
    def __init__(self) -> None:
        self.lines: list[str] = []

    @handlers.handler(any_event)
    def note(self, event: EventEnvelope) -> None:
        self.lines.append(f"{event.event_type} by {current_context()['user']}")


def main() -> None:
    audit = Audit()
    outbox = Outbox("sqlite://", context_providers=[lambda: {"user": "ada"}]).include(handlers).include(audit)
    with outbox.transaction():
        outbox.write(OrderPlaced(7, 4200), key="order-7")
        outbox.write("order.legacy", {"id": 6})
    while outbox.stats().backlog.new or outbox.stats().backlog.retry:
        outbox.drain()
    print(*audit.lines, sep="\n")
    outbox.close()


if __name__ == "__main__":
    main()
