"""The benchmark runs, and keeps what it found where it was told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parent.parent


def bench(*arguments: object) -> str:
    """What a run printed. Its databases must be on a disk; where there is none for temporary files it refuses."""
    command = [sys.executable, "-m", "bench", "--quick", "--rounds", "1", *map(str, arguments)]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if "name a folder on a disk" in run.stderr:
        pytest.skip("temporary files are kept in memory here")
    assert run.returncode == 0, run.stderr
    return run.stdout


def saved(out: Path) -> dict[str, Any]:
    [file] = out.glob("*.json")
    return json.loads(file.read_text())


def test_a_quick_bench_saves_ratios_beside_hand_written_code(tmp_path: Path) -> None:
    """No figure is asserted: the machine that runs the tests has other work to do."""
    printed = bench("--only", "write_threads", "--out", tmp_path)

    record = saved(tmp_path)
    assert "WRITE_THREADS" in printed
    assert record.keys() >= {"date", "command", "facts", "sizes", "results"}
    assert record["facts"].keys() >= {"python", "sqlite", "cores", "filesystem", "revision", "load_before"}
    assert [line["variant"] for line in record["results"]] == [
        "not started, tx.execute",
        "not started, tx.connection.execute",
        "started, delivering meanwhile",
    ]
    for line in record["results"]:
        for figure in ("ours", "theirs", "ratio", "cpu_ours", "cpu_theirs"):
            assert 0 < line[figure]["low"] <= line[figure]["median"] <= line[figure]["high"]
        assert {len(rounds) for rounds in line["details"]["wall_seconds"].values()} == {1}
    goals = [line["goal"] for line in record["results"]]
    assert [goal and goal["target"] for goal in goals] == [0.75, 0.75, None]
    assert all(goal["is_reached"] in (True, False) for goal in goals if goal)


def test_a_result_names_no_folder_and_leaves_no_database_behind(tmp_path: Path) -> None:
    """What is saved may be published."""
    out, folder = tmp_path / "out", tmp_path / "databases"
    folder.mkdir()

    printed = bench("--only", "write_all", "--out", out, "--folder", folder)

    assert list(folder.iterdir()) == []
    for text in (printed, json.dumps(saved(out))):
        assert str(tmp_path) not in text
        assert str(_ROOT) not in text
