"""An event beside an ORM object: one session, one commit, one INSERT more. Needs SQLAlchemy.

python examples/sqlalchemy_shop.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from aftercommit import Outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


@dataclass
class OrderPlaced:
    order_id: int
    total: int


def place(session: Session, outbox: Outbox, total: int) -> Order:
    order = Order(total=total)
    session.add(order)
    session.flush()  # gives the order its id; the event is inserted with the commit
    outbox.write(OrderPlaced(order.id, total), tx=session)
    return order


def main(folder: Path) -> None:
    engine = create_engine(f"sqlite:///{folder / 'shop.db'}")
    Base.metadata.create_all(engine)
    outbox = Outbox(engine)

    @outbox.handler
    def send_receipt(event: OrderPlaced) -> None:
        print(f"receipt for order {event.order_id}: {event.total}")

    with outbox:
        with Session(engine) as session:
            place(session, outbox, 4200)
            session.commit()
        with Session(engine) as session:
            place(session, outbox, 9900)
            session.rollback()
        outbox.drain()
    with Session(engine) as session:
        print("orders:", session.scalar(select(func.count()).select_from(Order)))
    engine.dispose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
