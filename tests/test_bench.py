"""The benchmark runs, and keeps what it found where it was told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def test_a_quick_bench_saves_ratios_beside_hand_written_code(tmp_path: Path) -> None:
    """No figure is asserted: the machine that runs the tests has other work to do."""
    command = [sys.executable, "-m", "bench", "--quick", "--only", "write_threads", "--rounds", "1"]

    run = subprocess.run([*command, "--out", str(tmp_path)], cwd=_ROOT, capture_output=True, text=True)

    assert run.returncode == 0, run.stderr
    assert "WRITE_THREADS" in run.stdout
    [file] = tmp_path.glob("*.json")
    record = json.loads(file.read_text())
    assert record.keys() >= {"date", "command", "facts", "sizes", "results"}
    assert record["facts"].keys() >= {
        "python",
        "sqlite",
        "cores",
        "filesystem",
        "revision",
        "load_before",
        "load_after",
    }
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


def test_a_result_names_no_path_of_the_machine(tmp_path: Path) -> None:
    """What is saved may be published: the folders of a run stay out of it."""
    out, folder = tmp_path / "out", tmp_path / "databases"
    folder.mkdir()
    command = [sys.executable, "-m", "bench", "--quick", "--only", "write_all", "--rounds", "1"]

    run = subprocess.run(
        [*command, "--out", str(out), "--folder", str(folder)], cwd=_ROOT, capture_output=True, text=True
    )

    if "name a folder on a disk" in run.stderr:
        return  # temporary files are in memory here, and the bench rightly refuses that
    assert run.returncode == 0, run.stderr
    [file] = out.glob("*.json")
    text = file.read_text() + run.stdout
    assert str(tmp_path) not in text
    assert str(_ROOT) not in text
    assert list(folder.iterdir()) == []
