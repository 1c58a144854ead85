"""The benchmark runs, and keeps what it found where it was told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import pytest

from aftercommit import Outbox
from bench.catalogue import MEASURES, Measure, taken
from bench.pages import write
from bench.redis.hand import RedisHand
from bench.redis.place import Redis
from bench.results import Goal, Line, Spread
from bench.run import Found, run
from bench.servers.places import Mysql, Place, Postgres
from bench.sizes import QUICK
from tests import redis_servers
from tests.conftest import server
from tests.servers import PrivatePostgres

_ROOT = Path(__file__).resolve().parent.parent


def bench(*arguments: object) -> str:
    """What a run printed. Its databases must be on a disk; where there is none for temporary files it refuses."""
    command = [sys.executable, "-m", "bench", "--quick", "--rounds", "1", *map(str, arguments)]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if "name a folder on a disk" in run.stderr:
        pytest.skip("temporary files are kept in memory here")
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def saved(out: Path) -> dict[str, Any]:
    [file] = out.glob("*.json")
    return json.loads(file.read_text())


def test_a_quick_bench_saves_ratios_beside_hand_written_code(tmp_path: Path) -> None:
    """No figure is asserted: the machine that runs the tests has other work to do."""
    printed = bench("--only", "sqlite_write", "--out", tmp_path)

    record = saved(tmp_path)
    assert "SQLITE_WRITE" in printed
    assert record.keys() >= {"date", "command", "facts", "sizes", "seconds", "left_out", "failed", "results"}
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
    goals = [[(goal["id"], goal["target"]) for goal in line["goals"]] for line in record["results"]]
    assert goals == [[("P11", 0.8), ("P15", 1.2)], [("P11", 0.8), ("P15", 1.2)], []]
    assert all(goal["is_reached"] in (True, False) for line in record["results"] for goal in line["goals"])


def test_a_result_names_no_folder_and_leaves_no_database_behind(tmp_path: Path) -> None:
    """What is saved may be published."""
    out, folder = tmp_path / "out", tmp_path / "databases"
    folder.mkdir()

    printed = bench("--only", "sqlite_write_all", "--out", out, "--folder", folder)

    assert list(folder.iterdir()) == []
    for text in (printed, json.dumps(saved(out))):
        assert str(tmp_path) not in text
        assert str(_ROOT) not in text


# ---------------------------------------------------------------- a run


def fault(name: str) -> Measure:
    return Measure(name, f"one that {name}", "tests.bench_faults")


def test_a_measure_that_breaks_is_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []

    def tell(name: str, found: Found, lines: list[Line]) -> None:
        told.append((name, len(found.lines)))

    found = run([fault(name) for name in ("works", "breaks", "lacks", "works")], QUICK, tmp_path, tell)

    assert told == [("works", 1), ("breaks", 1), ("lacks", 1), ("works", 2)]
    assert found.left_out == {"lacks": "no such server"}
    assert found.failed.keys() == {"breaks"}
    assert "ZeroDivisionError: nobody expected this" in found.failed["breaks"]
    assert found.lines[0].ours == Spread(2.0, 1.0, 3.0)


def test_a_measure_that_hangs_is_ended_with_its_processes_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is up as soon as it hangs: its process, which nobody else would end, has said that it is there."""
    os.mkfifo(tmp_path / "pipe")
    pipes: list[BinaryIO] = []

    class Impatient(subprocess.Popen[bytes]):
        def communicate(self, told: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
            if "hangs" not in self.args:
                return super().communicate(told, timeout)
            self.stdin.write(told)
            self.stdin.close()
            pipes.append((tmp_path / "pipe").open("rb", buffering=0))
            assert pipes[0].read(4) == b"here"
            raise subprocess.TimeoutExpired(self.args, timeout)

    monkeypatch.setattr("bench.run.subprocess.Popen", Impatient)
    found = run([fault("hangs"), fault("works")], QUICK, tmp_path, lambda *_: None)

    assert found.failed == {"hangs": f"did not end within {QUICK.patience:g} s"}
    assert [line.measure for line in found.lines] == ["works"]
    with pipes[0] as pipe:
        assert pipe.read() == b""  # the end of whoever held it


def test_every_measure_is_a_function_of_its_name_and_belongs_to_a_run() -> None:
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    for measure in MEASURES:
        source = (_ROOT / Path(*measure.module.split("."))).with_suffix(".py").read_text()
        assert f"\ndef {measure.name}(sizes: Sizes, " in source

    everything = {*taken(is_long=True), *taken(peers=True)}
    assert everything == set(MEASURES)
    assert {measure.when for measure in taken()} == {"always"}
    assert [measure.name for measure in taken(only=["import_time"])] == ["import_time"]


def test_a_page_says_which_targets_were_reached_and_leaves_the_rest_of_the_text_alone(tmp_path: Path) -> None:
    good = Line(
        "sqlite_drain",
        "the good one",
        "a bare loop",
        "rows/s",
        ours=Spread.of([80.0, 90.0]),
        theirs=Spread.of([100.0]),
        ratio=Spread.of([0.8, 0.9]),
        goals=(Goal("P11", "ratio", 0.5),),
    )
    late = Line(
        "sqlite_latency", "the late one", "", "ms p50", ours=Spread.of([7.0]), goals=(Goal("P6", "figure", 0.1),)
    )
    (tmp_path / "README.md").write_text("Before.\n<!-- verdicts: latest -->\nold\n<!-- end -->\nAfter.\n")

    record = {
        "command": "python -m bench",
        "date": "2026-01-02T03:04:05+00:00",
        "facts": {"revision": "abc", "cores": 2},
        "sizes": {"rounds": 5},
        "seconds": {"sqlite_drain": 60.0},
        "left_out": {"mysql_drain": "no server answers"},
        "failed": {"postgres_drain": "Traceback\nError: it broke"},
        "results": [good.as_json(), late.as_json()],
    }
    write("latest", record, tmp_path)

    page, explained = (tmp_path / "latest.md").read_text(), (tmp_path / "README.md").read_text()
    for text in (page, explained):
        assert "| P11 ratio ≥ 0.5 | sqlite_drain: the good one / a bare loop | 0.850 | yes |" in text
        assert "| P6 ≤ 0.1 (ms p50) | sqlite_latency: the late one | 7.00 | **no** |" in text
        assert "1 of 2 reached" in text
    assert "**mysql_drain** left out: no server answers" in page
    assert "**postgres_drain** FAILED: Error: it broke" in page
    assert explained.startswith("Before.\n<!-- verdicts: latest -->\n")
    assert explained.endswith("<!-- end -->\nAfter.\n")
    assert "old" not in explained


# ---------------------------------------------------------------- servers

SETTINGS = {"postgres": "fsync", "mysql": "innodb_flush_log_at_trx_commit", "redis": "aof_enabled"}


@pytest.mark.slow
@pytest.mark.timeout(600)  # on a machine with other work each of its many short rounds takes its time
@pytest.mark.parametrize(
    "measure",
    [each.name for each in taken(is_long=True) if each.server in SETTINGS and each.name != "postgres_tail"],
    ids=lambda name: name,
)
def test_a_quick_bench_of_a_server_has_figures(measure: str, tmp_path: Path) -> None:
    """Each measure checks its own work: a row that is missing or left over fails the run."""
    urls = {kind: server(kind) for kind in SETTINGS if kind in measure.split("_")}

    printed = bench("--only", measure, "--out", tmp_path)

    record = saved(tmp_path)
    assert record["left_out"] == {}
    assert {line["measure"] for line in record["results"]} == {measure}
    assert record["failed"] == {}
    for line in record["results"]:
        for figure in ("ours", "theirs", "ratio"):
            if line[figure] is not None:
                assert line[figure]["low"] <= line[figure]["median"] <= line[figure]["high"]
    for kind, url in urls.items():
        assert SETTINGS[kind] in record["facts"][kind]
        for text in (printed, json.dumps(record)):
            assert urlsplit(url).netloc not in text


@pytest.mark.parametrize("level", ["logical", "replica"])
def test_the_tail_is_measured_where_the_server_replicates_logically(
    level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with PrivatePostgres(wal_level=level) as private:
        monkeypatch.setenv(Postgres.variable, private.url)
        printed = bench("--only", "postgres_tail", "--out", tmp_path)
    record = saved(tmp_path)
    assert record["failed"] == {}
    assert len(record["results"]) == (2 if level == "logical" else 0)
    assert ("POSTGRES_TAIL is left out: the server has wal_level = replica" in printed) == (level == "replica")


def test_a_server_that_is_not_there_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(Postgres.variable, "postgresql://somebody:hidden@127.0.0.1:1/nowhere")
    monkeypatch.setenv(Mysql.variable, "mysql://somebody:hidden@127.0.0.1:1/nowhere")
    monkeypatch.setenv(Redis.variable, "redis://somebody:hidden@127.0.0.1:1/0")

    names = ("postgres_write", "mysql_drain", "redis_drain")
    printed = bench(*(word for name in names for word in ("--only", name)), "--out", tmp_path)

    record = saved(tmp_path)
    assert record["results"] == []
    assert record["left_out"].keys() == set(names)
    assert "POSTGRES_WRITE is left out: no PostgreSQL answers" in printed
    assert "REDIS_DRAIN is left out: no Redis answers" in printed
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


def test_the_keys_of_a_measure_are_unlinked_even_when_it_fails(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the backlog that every round copies as well."""
    monkeypatch.setenv(Redis.variable, redis_url)

    with pytest.raises(ZeroDivisionError), Redis.opened() as opened:
        for rows in (10, 20, 20):
            opened.fill(rows)
            assert opened.pending() == rows
        raise ZeroDivisionError

    with redis_servers.connected(redis_url) as client:
        assert list(client.scan_iter(f"*{opened.table}*", count=1000)) == []


def test_a_backlog_in_redis_that_is_written_by_hand_is_delivered(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop by hand and the outbox take the same rows, and leave nothing."""
    monkeypatch.setenv(Redis.variable, redis_url)
    texts: list[str] = []

    with Redis.opened() as place:
        place.fill(30)
        by_hand = RedisHand(place.url, place.table).open()
        assert by_hand.drain(20, texts.append) == 30
        by_hand.close()
        assert place.pending() == 0

        place.fill(30)
        outbox = Outbox(place.url, table=place.table)
        outbox.register("OrderPlaced", lambda event: texts.append(event.payload_json))
        assert outbox.drain().is_complete
        outbox.close()
        assert (place.pending(), place.dead()) == (0, 0)

    assert sorted(texts[:30]) == sorted(texts[30:])


def test_a_run_beside_other_libraries_says_which_are_not_installed(tmp_path: Path) -> None:
    server("postgres")

    printed = bench("--peers", "--only", "postgres_peers_ordered", "--out", tmp_path)

    record = saved(tmp_path)
    here = find_spec("txoutbox") is not None
    assert record["facts"]["oban"]
    assert (record["facts"]["txoutbox"] == "not installed") is not here
    assert ("POSTGRES_PEERS_ORDERED is left out: txoutbox is not installed" in printed) is not here
