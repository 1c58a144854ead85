"""FastAPI with an AsyncSession per request: write() needs no await there. Needs FastAPI, SQLAlchemy, aiosqlite, httpx.

uvicorn --app-dir examples --factory fastapi_shop:create_app
python examples/fastapi_shop.py
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from fastapi import Depends, FastAPI, HTTPException
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from aftercommit import AsyncOutbox, HandlerSet


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
async def send_receipt(event: OrderPlaced) -> None:
    print(f"receipt for {event.total}")


def create_app(url: str = "sqlite+aiosqlite:///shop.db") -> FastAPI:
    engine = create_async_engine(url)
    sessions = async_sessionmaker(engine)
    outbox = AsyncOutbox(engine).include(handlers)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        async with outbox:  # starts with the server; with it, it delivers what it still holds, and stops
            yield
        await engine.dispose()

    async def session_of_request() -> AsyncIterator[AsyncSession]:
        """Committed when the request has succeeded, rolled back when it has not."""
        async with sessions() as session, session.begin():
            yield session

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{total}", status_code=201)
    async def place(total: int, session: AsyncSession = Depends(session_of_request)) -> dict[str, int]:  # noqa: B008
        order = Order(total=total)
        session.add(order)
        outbox.write(OrderPlaced(total), tx=session)
        if total > 5000:
            raise HTTPException(402, "too dear")  # takes the order and its event along
        await session.flush()
        return {"order": order.id}

    return app


async def main(folder: str) -> None:
    app = create_app(f"sqlite+aiosqlite:///{folder}/shop.db")
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://shop") as shop:
        for total in (4200, 9900):
            answer = await shop.post(f"/orders/{total}")
            print(answer.status_code, answer.json())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(main(folder))
