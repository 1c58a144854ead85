"""Every command on every store, in a row, as processes of their own: what one does the next one finds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from tests.cli.kit import started, write_shop
from tests.cli.launcher import Launcher
from tests.databases import MysqlDatabase, PostgresDatabase

#: Of its own in each database, so that it shares nothing with other tests.
TABLE = "cli_every"


@pytest.fixture(params=["sqlite", "postgres", "mysql", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'shop.db'}"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
def table(url: str, request: pytest.FixtureRequest) -> str:
    """On Redis the keys are removed behind the test; elsewhere the whole database is."""
    return str(request.getfixturevalue("redis_table")) if url.startswith("redis") else TABLE


@pytest.fixture
def launcher(tmp_path: Path, url: str) -> Iterator[Launcher]:
    with Launcher(tmp_path, url) as launcher:
        yield launcher


def test_every_command_on_every_store(url: str, table: str, launcher: Launcher, tmp_path: Path) -> None:
    """One scenario: starting Python is what costs."""
    journal = write_shop(tmp_path, url, table=table, create_schema=True)
    shop, place = ("--app", "shop:outbox"), ("--url", url, "--table", table)

    (handler,) = launcher.good("handlers", "shop:outbox")["handlers"]
    assert (handler["handler"], handler["events"]) == ("send_receipt", ["OrderPlaced"])
    assert launcher("run", "shop:outbox", "--drain").out == "0 delivered, 0 retried, 0 deferred, 0 dead\n"

    # The table is there now, so that a URL is enough to write to it.
    assert launcher.good("send", *shop, "OrderPlaced", '{"total": 1}')["event_id"]
    assert launcher.good("send", *place, "OrderPlaced", "-", stdin='{"total": 2}')["event_id"]
    assert launcher("send", *place, "OrderPlaced", '{"total": 3}', "--dry-run").code == 0
    assert launcher("send", *place, "OrderPlaced", "{").code != 0
    assert launcher("run", "shop:aio", "--drain").out == "2 delivered, 0 retried, 0 deferred, 0 dead\n"
    assert sorted(journal.read_text().split()) == ["1", "2"]

    _operated(launcher, journal, shop, place)

    _followed(launcher, tmp_path, shop, place)

    # Measured on a table of its own, which is gone behind it.
    figures = launcher.good("bench", "shop:aio", "--seconds", "0.1", "--size", "10")
    assert min(figures["written_per_second"], figures["delivered_per_second"]) > 0
    assert figures["latency_p95_ms"] >= figures["latency_p50_ms"] >= 0
    assert figures["table"] not in _names(url)


def _operated(launcher: Launcher, journal: Path, shop: tuple[str, ...], place: tuple[str, ...]) -> None:
    """One dead event and two that wait: what an operator sees of them and does with them."""
    dead = launcher.good("send", *shop, "OrderPlaced", '{"total": "none"}')["event_id"]
    launcher("run", "shop:outbox", "--drain")
    waiting = [launcher.good("send", *shop, "OrderPlaced", '{"total": 4}')["event_id"] for _ in range(2)]

    status = launcher.good("status", *place)
    assert (status["pending"], status["dead"]) == (2, 1)
    assert launcher("status", *place, "--fail-if", "dead>0").code == 1
    assert {row["event_id"] for row in launcher.good("list", *place, "--state", "new")["rows"]} == set(waiting)
    assert launcher.good("list", *place, "--type", "Nothing")["rows"] == []
    (row,) = launcher.good("show", dead, *place)["rows"]
    assert (row["status"], row["event_type"]) == ("dead", "OrderPlaced")
    assert "UndecodablePayload" in row["last_error"]
    assert launcher.good("dead", "show", dead[:12], *place)["rows"] == [row]

    (row,) = launcher.good("dead", "list", *place, "--error", "UndecodablePayload")["rows"]
    assert row["event_id"] == dead
    assert launcher("dead", "retry", "--all", *place).code == 2
    assert launcher("dead", "retry", "--all", *place, "--yes").out == "1 retried\n"
    assert launcher("cancel", dead, *place, "--yes").out == "1 cancelled\n"
    assert launcher("cancel", waiting[0], *place, "--yes").out == "1 cancelled\n"
    launcher("run", "shop:aio", "--drain")
    assert journal.read_text().split()[-1] == "4"

    again = launcher("replay", waiting[1], *shop, "--yes")
    if "redis" in place[1]:  # where done rows are deleted by default
        assert again.code == 1
    else:
        assert (again.code, again.out) == (0, "1 replayed\n")
        launcher("run", "shop:outbox", "--drain")
        assert journal.read_text().split()[-2:] == ["4", "4"]

    dead = launcher.good("send", *shop, "OrderPlaced", '{"total": "none"}')["event_id"]
    launcher("run", "shop:outbox", "--drain")
    assert launcher("dead", "discard", dead, *place, "--reason", "known", "--yes").out == "1 discarded\n"

    assert launcher("pause", "send_receipt", *place, "--reason", "mail is down").code == 0
    assert [each["reason"] for each in launcher.good("status", *place)["paused"]] == ["mail is down"]
    assert launcher("resume", "send_receipt", *place).code == 0

    findings = launcher("doctor", *shop, "--json").json["findings"]
    wrong = [each["what"] for each in findings if each["level"] == "failure"]
    assert [what for what in wrong if not what.startswith("fsync is off")] == []  # of a server that the run has started
    assert {each["code"] for each in findings} >= {"AC100", "AC101", "AC107", "AC111", "AC121"}
    assert launcher.good("migrate", "check", *place)["fits"]
    assert launcher.good("migrate", "status", *place)["fits"]
    script = launcher("migrate", "sql", *place)
    assert ("CREATE TABLE" in script.out) == ("redis" not in place[1])
    assert launcher("migrate", "up", *place).out.startswith("nothing to do")
    assert launcher("purge", *place, "--older-than", "0s", "--dead", "--yes").code == 0
    assert launcher.good("list", *place)["rows"] == []


def _followed(launcher: Launcher, folder: Path, shop: tuple[str, ...], place: tuple[str, ...]) -> None:
    """`tail` tells what is written from its first look on, so something is written until it has seen it."""
    tail = started("tail", *place, "--jsonl", "--count", "1", "--interval", "10ms", folder=folder)
    written = set()
    while tail.poll() is None:
        written.add(launcher.good("send", *shop, "OrderPlaced", '{"total": 5}')["event_id"])
    out, err = tail.communicate()
    assert (tail.returncode, json.loads(out)["event_id"] in written) == (0, True), err


def _names(url: str) -> str:
    """Of tables or keys that there are."""
    match url.partition(":")[0]:
        case "sqlite":
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
                return str(connection.execute("SELECT name FROM sqlite_master").fetchall())
        case "redis":
            with redis.Redis.from_url(url) as client:
                return str(list(client.scan_iter("*bench*", count=10_000)))
        case kind:
            database = (PostgresDatabase if kind.startswith("postgres") else MysqlDatabase)(url)
            with closing(database):
                return str([[*row] for row in database.read("SELECT table_name FROM information_schema.tables")])
