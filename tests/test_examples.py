"""The examples run as they stand, and say what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import PATIENCE

EXAMPLES = Path(__file__).parents[1] / "examples"


def lines_of(example: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / example], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_handlers() -> None:
    assert lines_of("handlers.py") == [
        "receipt for order 7, asked by ada",
        'legacy {"id":6}',
        "ticket for order 7 after 3 attempts: no answer about 4200",
        "OrderPlaced by ada",
        "order.legacy by ada",
    ]


def test_handlers_that_are_objects() -> None:
    assert lines_of("handler_objects.py") == [
        "mail: receipt for order-7 over 4200",
        'heard {"id":6}',
        "ticket for order-7: charge-card failed 3 times",
        "audit: order-7",
        "audit: order.legacy {'id': 6}",
    ]
