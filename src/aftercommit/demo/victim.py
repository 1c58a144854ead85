"""A second process that places orders and is killed between their commit and their delivery."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from aftercommit.demo.pace import FAST, Pace
from aftercommit.demo.shop import Shop

#: The hidden argument that makes this program the victim.
ARGUMENT: Final = "--victim"

#: Far from the numbers of the first process.
_FIRST: Final = 2001


@contextmanager
def victim(database: Path, *, orders: int, pace: Pace) -> Iterator[subprocess.Popen[bytes]]:
    """A child that commits orders and then stands still; it is dead, at the latest, when the block ends."""
    command = [sys.executable, "-m", "aftercommit.demo", ARGUMENT, str(database), str(orders)]
    child = subprocess.Popen(  # noqa: S603  (this very program)
        command + ["--fast"] * (pace is FAST),
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the parent, which ends its child
    )
    with child:
        try:
            yield child
        finally:
            child.kill()


def be_the_victim(database: Path, orders: int, pace: Pace) -> None:
    """Commit all orders in one transaction, and never come to deliver them."""
    with Shop(database, pace, note=lambda _: None, first=_FIRST) as shop, shop.outbox.transaction() as tx:
        # Called after the commit and, being the first callback, before any event goes to a worker.
        tx.after_commit(_stand_still)
        for _ in range(orders):
            shop.place("Carol")


def _stand_still() -> None:
    sys.stdin.buffer.read()  # ends only when the parent is gone and cannot kill any more
    os._exit(1)
