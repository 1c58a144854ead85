"""The examples run as they stand, and say what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import PATIENCE

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_handlers() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "handlers.py"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "receipt for order 7, asked by ada",
        'legacy {"id":6}',
        "ticket for order 7 after 3 attempts: no answer about 4200",
        "OrderPlaced by ada",
        "order.legacy by ada",
    ]
