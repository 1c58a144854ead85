"""examples/end_to_end: killed at every step, every order has one bill."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import aio_pika
import pytest

from tests.conftest import execute_postgres, other_database

ROOT = Path(__file__).parents[2]

#: It starts fifteen processes, and waits three times until what a killed one held is free.
PATIENCE = 240


@pytest.fixture
def name(rabbitmq_url: str) -> Iterator[str]:
    """Of the exchange and the queue; nothing is left of them."""
    name = f"aftercommit_{uuid4().hex[:12]}"
    yield name

    async def forget() -> None:
        async with await aio_pika.connect(rabbitmq_url) as connection:
            channel = await connection.channel()
            await channel.queue_delete(name)
            await channel.exchange_delete(name)

    asyncio.run(forget())


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    name = f"aftercommit_{uuid4().hex[:12]}"
    execute_postgres(postgres_url, f"CREATE DATABASE {name}")
    yield other_database(postgres_url, name).partition("://")[2]
    execute_postgres(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize(
    ("shop", "billing"),
    [
        ("postgresql+psycopg://{server}", "sqlite+aiosqlite:///{folder}/billing.db"),
        pytest.param("sqlite:///{folder}/shop.db", "postgresql+psycopg://{server}", marks=pytest.mark.slow, id="slow"),
    ],
)
def test_every_order_has_one_bill(
    rabbitmq_url: str, name: str, database: str, tmp_path: Path, shop: str, billing: str
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "examples.end_to_end"],
        cwd=ROOT,
        env={
            **os.environ,
            "SHOP_DATABASE": shop.format(folder=tmp_path, server=database),
            "BILLING_DATABASE": billing.format(folder=tmp_path, server=database),
            "BROKER": rabbitmq_url,
            "EXCHANGE": name,
            "QUEUE": name,
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "shop killed with its order written: 0 orders, 0 bills",
        "shop killed with its order committed: 2 orders, 1 bills",
        "shop killed with its order confirmed: 3 orders, 3 bills",
        "shop killed while it published: 4 orders, 4 bills",
        "billing killed with its bill written: 5 orders, 4 bills",
        "billing killed with its bill committed: 6 orders, 6 bills",
        "26 orders, 26 bills, 0 of them twice; 0 messages left",
        "3 messages came again and changed nothing",
    ]
