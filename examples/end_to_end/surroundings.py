"""What both programs are told by their environment, and the points at which they may be told to die."""

from __future__ import annotations

import os
import signal

#: Databases of their own, as SQLAlchemy names them; the billing's is used under asyncio.
SHOP_DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
BILLING_DATABASE = os.environ.get("BILLING_DATABASE", "sqlite+aiosqlite:///billing.db")
BROKER = os.environ.get("BROKER", "amqp://guest:guest@127.0.0.1:5672/")
EXCHANGE = os.environ.get("EXCHANGE", "shop")
QUEUE = os.environ.get("QUEUE", "billing")


def point(name: str) -> None:
    """Where the process is killed if it was told so: at once, as by a crash of the machine."""
    if os.environ.get("KILLED_AT") == name:
        os.kill(os.getpid(), signal.SIGKILL)
