"""The billing: a bill for each order, however often its message comes.

python -m examples.end_to_end.billing        until its input ends
"""

from __future__ import annotations

import asyncio
import sys

import aio_pika
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from aftercommit import AsyncInbox
from aftercommit.inbox.messages import from_amqp
from examples.end_to_end.surroundings import BILLING_DATABASE, BROKER, EXCHANGE, QUEUE, point


class Base(DeclarativeBase):
    pass


class Bill(Base):
    """Its number is its own: nothing but the inbox keeps an order from having two."""

    __tablename__ = "bill"
    number: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[int]


engine = create_async_engine(BILLING_DATABASE)
sessions = async_sessionmaker(engine)
inbox = AsyncInbox(engine, create_schema=True)


async def receive(message: aio_pika.abc.AbstractIncomingMessage) -> None:
    received = from_amqp(message)
    async with sessions.begin() as session, inbox.once(received.id, consumer="billing", tx=session) as first:
        if first:
            session.add(Bill(order=received.json()["number"]))
            await session.flush()
            point("bill written")  # and not committed
    point("bill committed")  # and the broker does not know it
    await message.ack()
    print("billed" if first else "again", received.json()["number"], flush=True)


async def main() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    await inbox.create_schema()
    async with await aio_pika.connect(BROKER) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        exchange = await channel.declare_exchange(EXCHANGE, "topic", durable=True)
        queue = await channel.declare_queue(QUEUE, durable=True)
        await queue.bind(exchange, "order.placed")
        await queue.consume(receive)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    await inbox.close()
    await engine.dispose()


if __name__ == "__main__":
    asyncio.run(main())
