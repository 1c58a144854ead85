"""Read by mypy, never run: what a type checker must refuse ends in `# wrong`, the rest it must take."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import asyncpg
import attrs
import msgspec
import pydantic
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
from sqlalchemy.orm import Session

from aftercommit import (
    AggregateType,
    AsyncOutbox,
    AsyncTransaction,
    BatchResult,
    DefaultListenerRegistry,
    EventEnvelope,
    EventListener,
    EventMetadata,
    FailureContext,
    Fixed,
    HandlerSet,
    JsonSerializer,
    NoRetry,
    Outbox,
    OutboxConfig,
    OutboxFallbackHandler,
    OutboxHandler,
    OutboxOptions,
    OutboxTypedHandler,
    StringAggregateType,
    StringEventType,
    Transaction,
    any_event,
)


@dataclass
class OrderPlaced:
    order_id: int


class OrderShipped(msgspec.Struct):
    order_id: int


class OrderPaid(pydantic.BaseModel):
    order_id: int


@attrs.define
class OrderReturned:
    order_id: int


outbox = Outbox("sqlite://", poll_interval="200ms", lock_timeout=30, purge_retention=None, worker_count=2)
async_outbox = AsyncOutbox("sqlite://", config=OutboxConfig(poll_interval="5s", max_poll_interval=timedelta(minutes=1)))
Outbox("sqlite://", wroker_count=2)  # wrong
Outbox("sqlite://", worker_count="2")  # wrong
Outbox("sqlite://", poll_interval=None)  # wrong
AsyncOutbox("sqlite://", wroker_count=2)  # wrong
Outbox.single_node("sqlite://", batch_size=10, serializer=JsonSerializer())
AsyncOutbox.multi_node("sqlite://", unroutable_grace=None)
Outbox.ordered("sqlite://", on_dead="continue", batchsize=10)  # wrong
AsyncOutbox.writer_only("sqlite://", purge_retention="7d", create_shcema=True)  # wrong
OutboxConfig(poll_intreval="5s")  # wrong
pause: timedelta = outbox.config.poll_interval
settings: OutboxOptions = {"worker_count": 4, "poll_interval": 2.5}
Outbox("sqlite://", **settings)
handlers = HandlerSet()


@outbox.handler
def receipt(event: OrderPlaced) -> int:
    return event.order_id


number: int = receipt(OrderPlaced(1))
receipt(OrderShipped(1))  # wrong


@receipt.fallback
def receipt_failed(event: OrderPlaced, failure: FailureContext) -> None: ...


@receipt.fallback  # wrong
def wrong_fallback(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.handler(OrderPlaced, id="second")
def second(event: OrderPlaced) -> None: ...


@second.fallback
async def second_failed(event: OrderPlaced, meta: EventMetadata, failure: FailureContext) -> None: ...


@outbox.fallback
def shipped_failed(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.fallback(OrderPaid)
def paid_failed(event: OrderPaid, meta: EventMetadata, failure: FailureContext) -> None: ...


@outbox.fallback  # wrong
def no_failure(event: OrderReturned) -> None: ...


@handlers.handler
async def with_meta(event: OrderPlaced | OrderShipped, meta: EventMetadata) -> None: ...


@outbox.handler(OrderPlaced, retry=Fixed("1s"), timeout="5s", id="by-class")
async def by_class(event: OrderPlaced, meta: EventMetadata) -> None: ...


@outbox.handler(OrderPlaced)  # wrong
def wrong_class(event: OrderShipped) -> None: ...


@outbox.handler(OrderPlaced, retry=3)  # wrong
def wrong_policy(event: OrderPlaced) -> None: ...


@outbox.handler(timeout="5s")
def timed(event: OrderPlaced) -> int:
    return event.order_id


number = timed(OrderPlaced(1))
timed(OrderShipped(1))  # wrong


@timed.fallback
def timed_failed(event: OrderPlaced, failure: FailureContext) -> None: ...


@timed.fallback  # wrong
def timed_wrongly(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.handler("Placed", id="placed")
async def placed(event: OrderPlaced, meta: EventMetadata) -> None: ...


@placed.fallback  # wrong
def placed_wrongly(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.handler(timeout="5s")  # wrong
def timed_without_parameter() -> None: ...


@outbox.handler("Anything")
def untyped(event, meta):  # type: ignore[no-untyped-def]
    ...


@outbox.handler("Named", retry=NoRetry(), aliases=["old"])
def named(event: EventEnvelope) -> None: ...


@outbox.handler(any_event, supports=lambda event: event.event_type == "A")
def generic(event: EventEnvelope, meta: EventMetadata) -> None: ...


@outbox.handler(transactional=True)
def in_session(event: OrderPlaced, tx: Session) -> int:
    return event.order_id


number = in_session(OrderPlaced(1), Session())
in_session(OrderShipped(1), Session())  # wrong


@in_session.fallback
def in_session_failed(event: OrderPlaced, failure: FailureContext) -> None: ...


@in_session.fallback  # wrong
def in_session_failed_wrongly(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.handler(OrderPlaced, transactional=True, timeout="5s")
def in_transaction(event: OrderPlaced, meta: EventMetadata, tx: Transaction) -> None: ...


@outbox.handler(OrderPlaced, transactional=True)  # wrong
def in_wrong_transaction(event: OrderShipped, tx: Transaction) -> None: ...


@async_outbox.handler("Placed", transactional=True)
async def in_async_transaction(event: EventEnvelope, tx: AsyncTransaction, meta: EventMetadata) -> None:
    await tx.execute("SELECT 1")


@outbox.handler(transactional=True, timout="5s")  # wrong
def with_wrong_option(event: OrderPlaced, tx: Transaction) -> None: ...


@outbox.handler  # wrong
def no_parameter() -> None: ...


class Desk:
    @handlers.handler
    def on_placed(self, event: OrderPlaced) -> None: ...

    @handlers.handler(concurrency=2)
    def on_paid(self, event: OrderPaid) -> None: ...

    @on_paid.fallback
    def on_paid_failed(self, event: OrderPaid, failure: FailureContext) -> None: ...

    @handlers.handler(OrderShipped)
    async def on_shipped(self, event: OrderShipped, meta: EventMetadata) -> None: ...

    @handlers.handler(transactional=True)
    def on_returned(self, event: OrderReturned, tx: Transaction) -> None: ...

    @on_returned.fallback
    def on_returned_failed(self, event: OrderReturned, failure: FailureContext) -> None: ...

    @on_placed.fallback
    def on_placed_failed(self, event: OrderPlaced, failure: FailureContext) -> None: ...

    @on_shipped.fallback
    def on_shipped_failed(self, event: OrderShipped, meta: EventMetadata, failure: FailureContext) -> None: ...

    @handlers.handler(OrderShipped)  # wrong
    def on_wrong(self, event: OrderPlaced) -> None: ...


outbox.include(handlers).include(Desk())


class Receipt(OutboxTypedHandler[OrderPlaced]):
    id = "receipt-by-class"
    retry = "fixed"
    timeout = 30

    def handle(self, payload: OrderPlaced) -> None: ...


class Shipping(OutboxTypedHandler[OrderShipped]):
    retry = Fixed("1s")
    aliases = ("shipping",)

    async def handle(self, event: OrderShipped, meta: EventMetadata) -> None: ...

    def destination(self, event: EventEnvelope) -> str:
        return event.event_type


class WrongPayload(OutboxTypedHandler[OrderPlaced]):
    def handle(self, payload: OrderShipped) -> None: ...  # wrong


class WrongOption(OutboxTypedHandler[OrderPlaced]):
    concurrency = "many"  # wrong

    def handle(self, payload: OrderPlaced) -> None: ...


class NoHandle(OutboxTypedHandler[OrderPlaced]): ...


class Audit(OutboxHandler):
    async def handle(self, payload: OrderPlaced | OrderPaid | object, metadata: EventMetadata) -> None:
        if isinstance(payload, OrderPlaced):
            print(payload.order_id)

    def supports(self, event: EventEnvelope) -> bool:
        return True


class WithoutMetadata(OutboxHandler):
    def handle(self, payload: object) -> None: ...  # wrong


class Rescue(OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderPlaced, failure: FailureContext) -> None: ...


class RescueAll(OutboxFallbackHandler[Any]):
    async def handle(self, payload: Any, meta: EventMetadata, failure: FailureContext) -> None: ...


class WrongRescue(OutboxFallbackHandler[OrderPlaced]):
    def handle(self, payload: OrderShipped, failure: FailureContext) -> None: ...  # wrong


receipts = outbox.handler(Receipt(), timeout="5s")
outbox.handler(Shipping())
outbox.handler(Audit(), id="audit")
outbox.handler(Audit(), idd="audit")  # wrong
outbox.handler(Rescue())  # wrong
outbox.handler(NoHandle())  # wrong
outbox.fallback(Rescue())
outbox.fallback(RescueAll())
outbox.fallback(Receipt())  # wrong
outbox.include(Receipt()).include(Rescue())


@receipts.fallback
def receipts_failed(event: OrderPlaced, failure: FailureContext) -> None: ...


@receipts.fallback  # wrong
def receipts_failed_wrongly(event: OrderShipped, failure: FailureContext) -> None: ...


@outbox.fallback(any_event)
def all_failed(event: EventEnvelope, failure: FailureContext) -> None: ...


class Heard(EventListener):
    async def on_event(self, event: EventEnvelope) -> None: ...


class Structural:
    def on_event(self, event: EventEnvelope) -> None: ...


class Deaf:
    def on_evnet(self, event: EventEnvelope) -> None: ...


outbox.register("A", Heard())
outbox.register(StringAggregateType.of("Order"), StringEventType.of("Placed"), Structural())
outbox.register(AggregateType.GLOBAL, "B", lambda event: print(event.event_id))
outbox.register("A", Deaf())  # wrong
outbox.register("A", "B", "C", Heard())  # wrong
DefaultListenerRegistry().register("A", Heard()).register("User", "A", print)
aggregate: str = AggregateType.GLOBAL.name
Outbox("sqlite://", retry_policy="exponential")
Outbox("sqlite://", retry_policy={"policy": "fixed", "delay": "5s", "exclude": ["ValueError"]})
Outbox("sqlite://", retry_policy=3)  # wrong

with outbox.transaction() as tx:
    outbox.write(OrderPlaced(1), tx=tx, key=7, context={"user": "ada"})
    outbox.write(OrderShipped(1))
    outbox.write(OrderPaid(order_id=1))
    outbox.write(OrderReturned(1))
    outbox.write("Named", {"a": 1}, headers={"a": "b"})
    outbox.write(EventEnvelope.of_json("A", "{}"))
    outbox.write("Named")  # wrong
    outbox.write({"a": 1})  # wrong
    outbox.write(7)  # wrong
    outbox.write(OrderPlaced(1), {"a": 1})  # wrong
    outbox.write(OrderPlaced("one"))  # wrong
    outbox.write(OrderPlaced(1), headers={"a": 1})  # wrong
    outbox.write(OrderPlaced(1), kye="k")  # wrong
    outbox.write(EventEnvelope.of_json("A", "{}"), key="k")  # wrong


async def main() -> None:
    async with async_outbox.transaction():
        print(str(await async_outbox.write(OrderPlaced(1))).upper())
        await async_outbox.write("Named", {"a": 1}, key=7, deliver_after="30s")
        await async_outbox.write("Named", {"a": 1}, kye="k")  # wrong
        await async_outbox.write("Named", {"a": 1}, tenant_id=7)  # wrong
        await async_outbox.write(3)  # wrong
        await async_outbox.publish(OrderPlaced(1))


async def forgets(
    driver: asyncpg.Connection[asyncpg.Record], connection: AsyncConnection, session: AsyncSession, other: Session
) -> None:
    async_outbox.write(OrderPlaced(1))  # wrong
    async_outbox.publish(OrderPlaced(1))  # wrong
    async_outbox.write_all([OrderPlaced(1)], tx=connection)  # wrong
    async_outbox.write("Named", {"a": 1}, tx=driver)  # wrong
    async_outbox.write("Named", {"a": 1}, tx=connection)  # wrong
    await async_outbox.write("Named", {"a": 1}, tx=driver)
    await asyncio.create_task(async_outbox.write(OrderPlaced(1), tx=driver))
    await async_outbox.write(OrderPlaced(1), tx=session)
    _ = async_outbox.write(OrderPlaced(1), tx=other)


@outbox.upcast(OrderPlaced, from_version=1)
def upcast(data: dict[str, Any]) -> dict[str, Any]:
    return data


@outbox.subscribe(OrderPlaced)
def noted(event: OrderPlaced) -> int:
    return event.order_id


number = noted(OrderPlaced(1))
noted(OrderShipped(1))  # wrong


@outbox.subscribe(OrderPlaced)  # wrong
def noted_wrongly(event: OrderShipped) -> None: ...


@async_outbox.subscribe(OrderPlaced)
async def noted_later(event: OrderPlaced | OrderShipped) -> None: ...


outbox.subscribe(OrderShipped, print)
outbox.subscribe(OrderShipped, receipt)  # wrong
outbox.subscribe(OrderPlaced, lambda event: event.order_id)
outbox.subscribe(OrderPlaced, lambda event: event.number)  # wrong
outbox.subscribe("OrderPlaced", print)  # wrong


@outbox.handler(OrderPlaced, batch=100, linger="5ms", id="many")
def many(events: list[OrderPlaced]) -> BatchResult:
    return BatchResult([None for _ in events])


many([OrderPlaced(1)])
many(OrderPlaced(1))  # wrong


@many.fallback
def many_failed(event: OrderPlaced, failure: FailureContext) -> None: ...


@many.fallback  # wrong
def many_failed_wrongly(events: list[OrderPlaced], failure: FailureContext) -> None: ...


@outbox.handler(batch=100)
async def many_by_annotation(events: Sequence[OrderPlaced], metas: list[EventMetadata]) -> None: ...


@outbox.handler(OrderPlaced, batch=100)  # wrong
def no_list(event: OrderPlaced) -> None: ...


@outbox.handler(OrderPlaced, linger="5ms")  # wrong
def lingers_alone(event: OrderPlaced) -> None: ...


class SendReceipts(OutboxTypedHandler[list[OrderPlaced]]):
    batch = 100

    def handle(self, payload: list[OrderPlaced], metadata: list[EventMetadata]) -> None: ...


outbox.handler(SendReceipts(), linger="5ms", batch=10)
