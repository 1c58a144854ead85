"""The examples of SQLAlchemy run as they stand, and say what they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import PATIENCE

EXAMPLES = Path(__file__).parents[2] / "examples"


def play(name: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=PATIENCE * 2, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout.splitlines()


def test_sqlalchemy() -> None:
    assert play("sqlalchemy_shop.py") == ["receipt for order 1: 4200", "orders: 1"]


def test_two_databases() -> None:
    assert play("two_databases.py") == ['sales: Moved {"order":7}', 'stock: Moved {"item":3}', "AC005 True True"]


def test_flask() -> None:
    assert play("flask_shop.py") == ["receipt for 4200", "201 422"]


def test_fastapi() -> None:
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    lines = play("fastapi_shop.py")
    assert sorted(lines) == ["201 {'order': 1}", "402 {'detail': 'too dear'}", "receipt for 4200"]
