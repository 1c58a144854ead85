"""Handlers as objects, from end to end: typed, generic and fallback classes, a listener, a key by an expression.

python examples/handler_objects.py
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from aftercommit import (
    AggregateType,
    EventEnvelope,
    EventListener,
    EventMetadata,
    FailureContext,
    Outbox,
    OutboxFallbackHandler,
    OutboxHandler,
    OutboxTypedHandler,
    StringEventType,
    outbox_event,
)

#: Failed attempts are warnings; here they are part of the play.
logging.getLogger("aftercommit").setLevel(logging.CRITICAL)


@outbox_event(key="#event.order.ref()")
@dataclass
class OrderPlaced:
    order: Order
    total: int


@dataclass
class Order:
    number: int

    def ref(self) -> str:
        return f"order-{self.number}"


class Mailer:
    def send(self, text: str) -> None:
        print(f"mail: {text}")


class SendReceipt(OutboxTypedHandler[OrderPlaced]):
    def __init__(self, mailer: Mailer) -> None:
        self.mailer = mailer

    def handle(self, payload: OrderPlaced, metadata: EventMetadata) -> None:
        self.mailer.send(f"receipt for {metadata.key} over {payload.total}")


class ChargeCard(OutboxTypedHandler[OrderPlaced]):
    id = "charge-card"
    retry = {"policy": "fixed", "delay": "10ms", "max_attempts": 3, "exclude": ["ValueError"]}  # noqa: RUF012
    timeout = "5s"

    async def handle(self, payload: OrderPlaced) -> None:
        raise ConnectionError(f"no answer about {payload.total}")


class OpenTicket(OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, failure: FailureContext) -> None:
        print(f"ticket for {payload.order.ref()}: {failure.handler_id} failed {failure.failure_count} times")


class Audit(OutboxHandler):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def handle(self, payload: object, metadata: EventMetadata) -> None:
        match payload:
            case OrderPlaced(order):
                self.lines.append(f"audit: {order.ref()}")
            case plain:
                self.lines.append(f"audit: {metadata.event_type} {plain}")


class Listener(EventListener):
    def on_event(self, event: EventEnvelope) -> None:
        print("heard", event.payload_json)


def main() -> None:
    audit = Audit()
    outbox = Outbox("sqlite://", retry_policy="exponential")
    for each in (SendReceipt(Mailer()), ChargeCard(), OpenTicket(), audit):
        outbox.include(each)
    outbox.register(AggregateType.GLOBAL, StringEventType.of("order.legacy"), Listener())
    with outbox.transaction():
        outbox.write(OrderPlaced(Order(7), 4200))
        outbox.write("order.legacy", {"id": 6})
    while outbox.stats().backlog.new or outbox.stats().backlog.retry:
        outbox.drain()
    print(*audit.lines, sep="\n")
    outbox.close()


if __name__ == "__main__":
    main()
