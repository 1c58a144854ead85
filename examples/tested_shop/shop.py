"""A shop as it runs in production: its outbox is on PostgreSQL, its handlers call a bank and a mail server."""

from __future__ import annotations

from dataclasses import dataclass

from aftercommit import EventMetadata, Exponential, FailureContext, Outbox

outbox = Outbox("postgresql://shop@db.example/shop")

#: What the bank has charged, by the id of the event: a second call for the same event charges nothing.
charged: dict[str, int] = {}
mails: list[str] = []
tickets: list[str] = []


@dataclass
class OrderPlaced:
    order_id: int
    total: int


@outbox.handler(retry=Exponential("1s", "1m", max_attempts=8))
def charge(event: OrderPlaced, meta: EventMetadata) -> None:
    charged[meta.event_id] = event.total


@charge.fallback
def open_ticket(event: OrderPlaced, failure: FailureContext) -> None:
    tickets.append(f"order {event.order_id} could not be charged")


@outbox.handler("ReminderDue")
def remind(event: object) -> None:
    mails.append("your basket waits")


def place_order(order_id: int, total: int) -> None:
    """The order and its event are saved together, or neither is."""
    with outbox.transaction():
        outbox.write(OrderPlaced(order_id, total), key=f"order-{order_id}")
        if total <= 0:
            raise ValueError("an order costs something")


def leave_basket() -> None:
    with outbox.transaction():
        outbox.write("ReminderDue", {"basket": 3}, deliver_after="1d")
