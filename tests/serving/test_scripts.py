"""A plain script: whoever forgets close() still leaves nothing behind when the script ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import SqliteDatabase
from tests.support import PATIENCE

SCRIPT = """
import os, sys
from aftercommit import Outbox

outbox = Outbox("sqlite:///shop.db", worker_count=1)
outbox.register("Placed", lambda event: print(event.payload_json))
outbox.start()
with outbox.transaction():
    for number in range(20):
        outbox.write("Placed", number)
{end}
"""


def run(folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-c", SCRIPT.format(end=end)]
    return subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "1 / 0"])
def test_a_started_outbox_is_closed_when_its_process_ends(tmp_path: Path, end: str) -> None:
    ended = run(tmp_path, end)
    assert ended.stdout.split() == [str(number) for number in range(20)]
    assert ended.returncode == {"": 0, "sys.exit(3)": 3, "1 / 0": 1}[end]
    assert ("Traceback" in ended.stderr) is (end == "1 / 0")
    rows = SqliteDatabase(tmp_path / "shop.db").read("SELECT status, locked_by FROM outbox_event")
    assert [tuple(row) for row in rows] == [(1, None)] * 20


def test_a_child_that_never_used_its_parents_outbox_closes_nothing(tmp_path: Path) -> None:
    """It ends with clean-up too, and must not give back what its parent holds."""
    ended = run(tmp_path, "os.fork() and os.wait()")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert sorted(map(int, ended.stdout.split())) == list(range(20))
