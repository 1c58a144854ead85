"""docs/handlers.md, "Effects exactly once": its example runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import create_engine, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from aftercommit import EventMetadata, Outbox, Transaction

TEXT = (Path(__file__).parents[2] / "docs/handlers.md").read_text()


class Base(DeclarativeBase):
    pass


class Stock(Base):
    __tablename__ = "stock"
    sku: Mapped[str] = mapped_column(primary_key=True)
    free: Mapped[int]


@dataclass
class OrderPlaced:
    order_id: int
    sku: str


@dataclass
class StockReserved:
    order_id: int


def test_the_steps_of_the_example_are_done_once_each(tmp_path: Path) -> None:
    (example,) = re.findall(r"## Effects exactly once\n.*?```python\n(.*?)```", TEXT, re.DOTALL)
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    with Session(engine) as session:
        Base.metadata.create_all(session.connection())
        session.execute(text("CREATE TABLE shipment (order_id INTEGER)"))
        session.add(Stock(sku="tea", free=3))
        session.commit()
    outbox = Outbox(engine)
    names = {
        "outbox": outbox,
        "Session": Session,
        "Transaction": Transaction,
        "EventMetadata": EventMetadata,
        "OrderPlaced": OrderPlaced,
        "StockReserved": StockReserved,
        "Stock": Stock,
        "update": update,
    }
    exec(compile(example, "docs/handlers.md", "exec"), names)  # noqa: S102
    with outbox.transaction():
        outbox.write(OrderPlaced(7, "tea"))
    assert outbox.drain().delivered == 2
    with Session(engine) as session:
        assert session.execute(text("SELECT order_id FROM shipment")).all() == [(7,)]
        assert session.get_one(Stock, "tea").free == 2
    outbox.close()
    engine.dispose()
