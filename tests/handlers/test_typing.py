"""A wrong payload type in a handler, a fallback or write() is an error under mypy --strict; right ones are none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SAMPLE = Path(__file__).with_name("typed_sample.py")
ROOT = Path(__file__).parents[2]


def test_a_type_checker_finds_what_is_wrong_and_nothing_else() -> None:
    """With the settings of the package, which are strict: what `make check` has read need not be read again."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(SAMPLE)]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    found = re.findall(r"typed_sample\.py:(\d+): error", checked.stdout)
    lines = enumerate(SAMPLE.read_text().splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert len(wrong) > 10
    assert set(map(int, found)) == wrong, checked.stdout + checked.stderr
