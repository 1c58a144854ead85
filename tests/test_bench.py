"""The benchmark runs, and keeps what it found where it was told to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from bench.servers import MEASURES as ON_SERVERS
from bench.servers import ON_REQUEST
from bench.servers.places import Mysql, Place, Postgres
from tests.conftest import server

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


# ---------------------------------------------------------------- servers

SETTINGS = {"postgres": "fsync", "mysql": "innodb_flush_log_at_trx_commit"}


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a machine with other work each of its many short rounds takes its time
@pytest.mark.parametrize("measure", [name for name in ON_SERVERS if name != ON_REQUEST])
def test_a_quick_bench_of_a_server_has_figures(measure: str, tmp_path: Path) -> None:
    """Each measure checks its own work: a row that is missing or left over fails the run."""
    kind = measure.partition("_")[0]
    url = server(kind)

    printed = bench("--only", measure, "--out", tmp_path)

    record = saved(tmp_path)
    assert record["left_out"] == {}
    assert {line["measure"] for line in record["results"]} == {measure}
    for line in record["results"]:
        for figure in ("ours", "theirs", "ratio"):
            assert 0 < line[figure]["low"] <= line[figure]["median"] <= line[figure]["high"]
    assert SETTINGS[kind] in record["facts"][kind]
    for text in (printed, json.dumps(record)):
        assert urlsplit(url).netloc not in text


def test_a_server_that_is_not_there_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Postgres.variable, "postgresql://somebody:hidden@127.0.0.1:1/nowhere")
    monkeypatch.setenv(Mysql.variable, "mysql://somebody:hidden@127.0.0.1:1/nowhere")

    printed = bench("--only", "postgres_write", "--only", "mysql_drain", "--out", tmp_path)

    record = saved(tmp_path)
    assert record["results"] == []
    assert record["left_out"].keys() == {"postgres_write", "mysql_drain"}
    assert "POSTGRES_WRITE is left out: no PostgreSQL answers" in printed
    for text in (printed, json.dumps(record)):
        assert "hidden" not in text
        assert "nowhere" not in text


@pytest.mark.parametrize(("kind", "place"), [("postgres", Postgres), ("mysql", Mysql)])
def test_the_database_of_a_measure_is_dropped_even_when_it_fails(
    kind: str, place: type[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(place.variable, server(kind))

    with pytest.raises(ZeroDivisionError), place.opened() as opened:
        name = urlsplit(opened.url).path.lstrip("/")
        opened.fill(10)
        assert opened.count("status = 0") == 10
        raise ZeroDivisionError

    somebody = place.connected()
    names = "SELECT datname FROM pg_database" if kind == "postgres" else "SHOW DATABASES"
    assert name not in {row[0] for row in somebody.run(names)}
    somebody.close()


def test_other_libraries_are_measured_only_on_request(tmp_path: Path) -> None:
    """Where none is installed, that is said."""
    server("postgres")

    printed = bench("--only", "import", "--peers", "--out", tmp_path)

    record = saved(tmp_path)
    assert "POSTGRES_PEERS" in printed
    assert ON_REQUEST in {line["measure"] for line in record["results"]} | record["left_out"].keys()
