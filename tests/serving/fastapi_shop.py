"""A shop in FastAPI; engine and outbox are made when it is loaded, and started by its lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from aftercommit import AsyncOutbox
from tests.serving.orders import OrderPlaced, about, config, handlers, note_the_end, place

engine = create_async_engine(place.url)
outbox = AsyncOutbox(engine, config=config).include(handlers)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await outbox.create_schema()
    async with outbox:
        yield
        note_the_end()
    await engine.dispose()


asgi = FastAPI(lifespan=lifespan)


@asgi.get("/about")
async def tell() -> dict[str, Any]:
    async with AsyncSession(engine) as session:
        which = await session.scalar(text("SELECT pg_backend_pid()")) if engine.name == "postgresql" else None
    return about(outbox, which)


@asgi.post("/orders/{number}", status_code=201)
@asgi.post("/orders/{number}/{waits}", status_code=201)
async def order(number: int, waits: str = "") -> None:
    async with AsyncSession(engine) as session, session.begin():
        await session.execute(text("INSERT INTO shop_order (number) VALUES (:number)"), {"number": number})
        outbox.write(OrderPlaced(number, bool(waits)), tx=session)
