"""Flask with a SQLAlchemy session per request. Each worker of the server delivers. Needs Flask, SQLAlchemy.

gunicorn --chdir examples --workers 2 --preload "flask_shop:create_app()"
python examples/flask_shop.py
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

from flask import Flask, abort
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from aftercommit import HandlerSet, Outbox


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    total: Mapped[int]


@dataclass
class OrderPlaced:
    total: int


handlers = HandlerSet()


@handlers.handler
def send_receipt(event: OrderPlaced) -> None:
    print(f"receipt for {event.total}", flush=True)


def create_app(url: str = "sqlite:///shop.db") -> Flask:
    engine = create_engine(url)
    Base.metadata.create_all(engine)
    outbox = Outbox(engine).include(handlers)
    app = Flask(__name__)
    app.extensions["aftercommit"] = outbox

    @app.before_request
    def deliver() -> None:
        outbox.start()  # with the first request of a process; it is closed when the process ends

    @app.post("/orders/<int:total>")
    def place(total: int) -> tuple[dict[str, int], int]:
        with Session(engine) as session, session.begin():
            order = Order(total=total)
            session.add(order)
            outbox.write(OrderPlaced(total), tx=session)
            if total > 5000:
                abort(422, "too dear")  # takes the order and its event along
            session.flush()
            return {"order": order.id}, 201

    return app


def main(folder: str) -> None:
    app = create_app(f"sqlite:///{folder}/shop.db")
    shop = app.test_client()
    answers = [shop.post(f"/orders/{total}") for total in (4200, 9900)]
    app.extensions["aftercommit"].close()
    print(*(answer.status_code for answer in answers))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(folder)
