"""The shop: an order and its event are one transaction, and the event goes to RabbitMQ.

python -m examples.end_to_end.shop 1 2 3     places these orders, and relays until its input ends
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from aftercommit import Outbox
from aftercommit.relays import RabbitMQ
from examples.end_to_end.surroundings import BROKER, EXCHANGE, SHOP_DATABASE, point


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    number: Mapped[int] = mapped_column(primary_key=True)


class Watched(RabbitMQ):
    """RabbitMQ, with two points to die at."""

    async def publish(self, messages: Sequence[Any]) -> Sequence[Any]:
        point("order committed")  # and nobody was told of it
        answers = await super().publish(messages)
        point("order confirmed")  # by the broker, and the outbox does not know it
        return answers


engine = create_engine(SHOP_DATABASE)

# What a killed process has held is taken over after lock_timeout: seconds here, so that nobody has to wait for long.
outbox = Outbox(engine, create_schema=True, lock_timeout="2s", poll_interval="200ms")
outbox.relay(Watched(BROKER, exchange=EXCHANGE, declare="topic"), to="order.placed", only="OrderPlaced")


def place(number: int) -> None:
    with Session(engine) as session, session.begin():
        if session.get(Order, number) is not None:
            return  # the customer has asked again, not knowing whether the order was placed
        session.add(Order(number=number))
        outbox.write("OrderPlaced", {"number": number}, key=f"order-{number}", tx=session)
        session.flush()
        point("order written")  # and not committed


if __name__ == "__main__":
    Base.metadata.create_all(engine)
    with outbox:
        for number in sys.argv[1:]:
            place(int(number))
        print("placed", flush=True)
        sys.stdin.read()
