"""Two databases in one program, each with its own outbox. A session of the wrong one is refused. Needs SQLAlchemy.

python examples/two_databases.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import Session

from aftercommit import EventEnvelope, Outbox, UnsupportedTransaction


def opened(path: Path) -> tuple[Engine, Outbox]:
    engine = create_engine(f"sqlite:///{path}")
    outbox = Outbox(engine)
    outbox.register("Moved", lambda event: print(f"{path.stem}: {describe(event)}"))
    return engine, outbox


def describe(event: EventEnvelope) -> str:
    return f"{event.event_type} {event.payload_json}"


def main(folder: Path) -> None:
    sales, sales_outbox = opened(folder / "sales.db")
    stock, stock_outbox = opened(folder / "stock.db")
    with sales_outbox, stock_outbox:
        with Session(sales) as session:
            sales_outbox.write("Moved", {"order": 7}, tx=session)
            session.commit()
        sales_outbox.drain()
        with Session(stock) as session:
            stock_outbox.write("Moved", {"item": 3}, tx=session)
            session.commit()
        stock_outbox.drain()
        with Session(stock) as session:
            try:
                sales_outbox.write("Moved", {"order": 8}, tx=session)
            except UnsupportedTransaction as refusal:
                print(refusal.code, "stock.db" in str(refusal), "sales.db" in str(refusal))
    sales.dispose()
    stock.dispose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
