"""What the shops of these tests share: where they work, what they sell, and a handler that notes who delivered."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from aftercommit import HandlerSet, OutboxConfig
from tests.promises.journal import Journal

#: The shop's own table.
ORDERS: Final = "CREATE TABLE shop_order (number INTEGER PRIMARY KEY)"

#: So that a fleet notices soon what one of its members left. Leases are long enough for a machine that is very busy.
HURRY: Final[dict[str, Any]] = {"poll_interval": "100ms", "worker_count": 2, "drain_timeout": "20s"}

config = OutboxConfig(**HURRY)
handlers = HandlerSet()


@dataclass
class OrderPlaced:
    number: int
    waits: bool = False


class Place:
    """As the environment of the server says."""

    def __init__(self) -> None:
        self.url = os.environ["SHOP_URL"]
        self.folder = Path(os.environ["SHOP_FOLDER"])
        self.journal = Journal(self.folder / "journal")
        self.gate = self.folder / "gate"


if "SHOP_URL" in os.environ:
    place = Place()


@handlers.handler
def deliver(event: OrderPlaced) -> None:
    place.journal.say("enter", "", event.number)
    while event.waits and not place.gate.exists():
        threading.Event().wait(0.005)
    place.journal.say("effect", "", event.number)


def note_the_end() -> None:
    """Just before the outbox is closed; handlers that wait may go on once all have said so."""
    place.journal.say("ending", "")


def about(outbox: Any, session: object) -> dict[str, Any]:
    """Which worker serves, and by which connection."""
    return {"pid": os.getpid(), "owner": outbox._engine.owner, "session": session}
