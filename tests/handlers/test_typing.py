"""A wrong payload type in a handler, a fallback or write() is an error under mypy --strict; right ones are none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import aftercommit

SAMPLE = Path(__file__).with_name("typed_sample.py")
SOURCES = Path(aftercommit.__file__).parents[1]


def test_a_type_checker_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    command = ["-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", "--no-error-summary", str(SAMPLE)]
    checked = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, env={"MYPYPATH": str(SOURCES)}, check=False
    )
    found = re.findall(r"typed_sample\.py:(\d+): error", checked.stdout)
    lines = enumerate(SAMPLE.read_text().splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    assert len(wrong) > 10
    assert set(map(int, found)) == wrong, checked.stdout + checked.stderr
