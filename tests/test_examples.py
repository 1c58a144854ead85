"""The examples run as they stand, and say what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import PATIENCE, World

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


@pytest.mark.parametrize("module", ["threads", "aio"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_by_hand(request: pytest.FixtureRequest, tmp_path: Path, database: str, module: str) -> None:
    """The wiring of the specification, with a process that ends in the middle of a delivery."""
    url = None if database == "sqlite" else request.getfixturevalue("postgres_url")
    world = World("threads", tmp_path, database, url)
    if url is not None:
        world.somebody.clear()
    ran = subprocess.run(
        [sys.executable, "-m", f"examples.by_hand.{module}", world.url],
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE,
        check=False,
        cwd=EXAMPLES.parent,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        'hot UserCreated {"id":123} after 0 failures',
        'hot MailSent {"id":123} after 0 failures',
        'cold MailSent {"id":123} after 1 failures',
        'hot CardCharged {"id":123} after 0 failures',
        'cold CardCharged {"id":123} after 1 failures',
        "CardCharged is dead",
        'cold UserCreated {"id":124} after 0 failures',
    ]
    assert world.statuses() == [1, 1, 3, 1]
    world.somebody.close()
