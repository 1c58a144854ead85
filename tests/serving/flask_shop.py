"""A shop in Flask. Loading it uses the database, as programs do that look something up when they begin."""

from __future__ import annotations

import atexit
from typing import Any

from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

from aftercommit import Outbox
from tests.serving.orders import OrderPlaced, about, config, handlers, note_the_end, place

engine = create_engine(place.url)
outbox = Outbox(engine, config=config).include(handlers)
outbox.create_schema()
with engine.connect() as connection:
    connection.execute(text("SELECT count(*) FROM shop_order"))

wsgi = Flask(__name__)


@wsgi.before_request
def start() -> None:
    if not outbox.is_started:
        outbox.start()
        atexit.register(note_the_end)  # what is registered last is called first


@wsgi.get("/about")
def tell() -> dict[str, Any]:
    with Session(engine) as session:
        which = session.scalar(text("SELECT pg_backend_pid()")) if engine.name == "postgresql" else None
    return about(outbox, which)


@wsgi.post("/orders/<int:number>")
@wsgi.post("/orders/<int:number>/<waits>")
def order(number: int, waits: str = "") -> tuple[str, int]:
    with Session(engine) as session, session.begin():
        session.execute(text("INSERT INTO shop_order (number) VALUES (:number)"), {"number": number})
        outbox.write(OrderPlaced(number, bool(waits)), tx=session)
    return "", 201
