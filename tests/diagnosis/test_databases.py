"""What each database can suffer from, provoked on a real one wherever that harms nobody else."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from aftercommit import Finding, Level, Outbox
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.stores.mysql import diagnosis as mysql
from aftercommit.stores.postgres import diagnosis as postgres
from aftercommit.stores.postgres.diagnosis import Vacuum, slot_finding, vacuum_findings
from aftercommit.stores.redis.diagnosis import settings_findings as of_redis
from aftercommit.stores.sql.diagnosis import clock_finding
from aftercommit.stores.sqlite import diagnosis as sqlite
from tests.promises.waiting import until
from tests.servers import pymysql_connect
from tests.stores.kit import run_in
from tests.support import World


def on_store(world: World, step: Callable[[Any], Any], **options: Any) -> Any:
    colour = Colour.ASYNC if world.is_async else Colour.BLOCKING

    async def scenario() -> Any:
        store = open_store(world.url, colour, **options)
        try:
            return await step(store)
        finally:
            await store.close()

    return run_in(colour, scenario())


def look(world: World, **options: Any) -> list[Finding]:
    """On a store alone: the database, not what its rows say."""
    found: list[Finding] = on_store(world, lambda store: store.diagnosis.findings(), **options)
    return found


def made(world: World, table: str) -> None:
    on_store(world, lambda store: store.create_schema(), table=table)


def levels(findings: list[Finding]) -> dict[str, Level]:
    """The worst of each code."""
    order = [Level.OK, Level.UNKNOWN, Level.WARNING, Level.FAILURE]
    return {
        each.code: max((other.level for other in findings if other.code == each.code), key=order.index)
        for each in findings
    }


def one(code: str, findings: list[Finding]) -> Finding:
    (found,) = [each for each in findings if each.code == code and each.is_problem]
    return found


# ---------------------------------------------------------------- all of SQL


def test_what_the_migrations_make_is_missed_and_its_statement_mends_it(server_world: World) -> None:
    """A schema of an older release, a table and an index that somebody dropped; each fix is run as it is given."""
    world, table = server_world, "ill"
    made(world, table)
    well = look(world, table=table)
    assert {code: level for code, level in levels(well).items() if code in ("AC101", "AC102", "AC103", "AC104")} == (
        dict.fromkeys(("AC101", "AC102", "AC103", "AC104"), Level.OK)
    )
    world.change(f"DROP INDEX ill_order{' ON ill' if world.database == 'mariadb' else ''}")
    world.change(f"DROP INDEX ill_dead{' ON ill' if world.database == 'mariadb' else ''}")
    world.change("DROP TABLE ill_partition")
    findings = look(world, table=table)
    assert "ill_partition" in one("AC102", findings).what
    broken = [each for each in findings if each.code == "AC103"]
    assert sorted(each.what.split()[2] for each in broken) == ["ill_dead", "ill_order"]
    for each in broken:
        assert each.sql
        world.change(each.sql)
    assert levels(look(world, table=table))["AC103"] is Level.OK
    world.change("UPDATE ill_schema SET value = '1' WHERE name = 'version'")
    assert one("AC101", look(world, table=table)).level is Level.FAILURE
    world.change("UPDATE ill_schema SET value = '99' WHERE name = 'version'")
    ahead = one("AC101", look(world, table=table))
    assert (ahead.level, "99" in ahead.what) == (Level.WARNING, True)


def test_a_database_that_is_away_is_a_finding_and_shows_no_password(world: World) -> None:
    for url in (
        "postgresql://shop:canary@127.0.0.1:1/shop",
        "mysql://shop:canary@127.0.0.1:1/shop",
        "redis://:canary@127.0.0.1:1/0",
    ):

        async def scenario(url: str = url) -> list[Finding]:
            found: list[Finding] = await world.outbox(url).diagnose()
            return found

        (finding,) = world.run(scenario)
        assert (finding.code, finding.level) == ("AC100", Level.FAILURE)
        assert finding.fix
        assert "canary" not in repr(finding)


def test_clocks_that_are_apart_are_noticed_beyond_the_time_that_the_question_took() -> None:
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    late = noon + timedelta(seconds=30)
    assert clock_finding(noon + timedelta(seconds=15), noon, late).level is Level.OK
    assert clock_finding(noon - timedelta(seconds=1), noon, late).level is Level.OK
    behind, ahead = (
        clock_finding(noon - timedelta(minutes=2), noon, late),
        clock_finding(late + 9 * (late - noon), noon, late),
    )
    assert behind.what.startswith("the database's clock is 2m behind this host's")
    assert ahead.what.startswith("the database's clock is 4m 30s ahead of this host's")
    assert (behind.level, ahead.level) == (Level.WARNING, Level.WARNING)


# ---------------------------------------------------------------- PostgreSQL


@pytest.fixture
def postgres_world(postgres_url: str, tmp_path: Path) -> Iterator[World]:
    world = World("threads", tmp_path, "postgres", postgres_url)
    with closing(world.somebody):
        world.somebody.clear()
        yield world


def test_postgres_tells_of_an_invalid_index_and_of_a_vacuum_that_is_off(postgres_world: World) -> None:
    made(postgres_world, "ill")
    postgres_world.change("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ill_pending'::regclass")
    postgres_world.change("ALTER TABLE ill SET (autovacuum_enabled = false)")
    findings = look(postgres_world, table="ill")
    broken = one("AC103", findings)
    assert broken.what.startswith("the index ill_pending is there but cannot be used")
    assert broken.sql is not None
    gone, again = broken.sql.split("; ")
    assert gone.startswith("DROP INDEX CONCURRENTLY")
    assert again.startswith("CREATE INDEX CONCURRENTLY")
    for statement in (gone, again):
        postgres_world.change(statement)
    assert levels(look(postgres_world, table="ill"))["AC103"] is Level.OK
    assert one("AC114", findings).sql is not None


def test_postgres_tells_of_transactions_that_stay_open_and_how_to_end_them(
    postgres_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "LONG", timedelta(0))
    made(postgres_world, "ill")
    with psycopg.connect(postgres_world.url, application_name="forgotten") as connection:
        connection.execute("UPDATE ill_schema SET value = value")
        (found,) = [each for each in look(postgres_world, table="ill") if "forgotten" in each.what]
        assert (found.code, found.level) == ("AC113", Level.WARNING)
        assert found.sql == f"SELECT pg_terminate_backend({connection.info.backend_pid})"


def test_postgres_tells_of_a_slot_that_nobody_reads(postgres_world: World) -> None:
    name = f"forgotten_{postgres_world.url.rpartition('/')[2][-20:].replace('-', '_')}"
    postgres_world.rows(f"SELECT pg_create_physical_replication_slot('{name}', true)")
    try:
        (found,) = [each for each in look(postgres_world) if name in each.what]
        assert (found.code, found.level) == ("AC112", Level.WARNING)
        assert found.sql is not None
    finally:
        postgres_world.rows(f"SELECT pg_drop_replication_slot('{name}')")
    assert "lags" in slot_finding("slow", True, 5 * 1024**3).what


def test_listen_is_tried_and_a_pooler_that_breaks_it_is_named(
    postgres_url: str, pgbouncer: Any, tmp_path: Path
) -> None:
    for name in ("threads", "asyncio"):
        assert levels(look(World(name, tmp_path, "postgres", postgres_url)))["AC115"] is Level.OK
    assert "pooler" in one("AC115", look(World("threads", tmp_path, "postgres", pgbouncer.url))).what


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (Vacuum(10, 10, "", "on", "0.2"), None),
        (Vacuum(10, 10, "", "off", "0.2"), "autovacuum is off on this server"),
        (Vacuum(10, 10, "fillfactor=50,autovacuum_enabled=off", "on", "0.2"), "autovacuum is off for t"),
        (Vacuum(900_000, 10, "", "on", "0.2"), "vacuum waits for 20% of 900,010 rows"),
        (Vacuum(900_000, 10, "autovacuum_vacuum_scale_factor=0.02", "on", "0.2"), None),
        (Vacuum(10, 900_000, "autovacuum_vacuum_scale_factor=0.02", "on", "0.2"), "900,000 dead rows beside 10"),
    ],
)
def test_vacuum_is_judged_by_what_is_set_and_by_what_is_dead(facts: Vacuum, said: str | None) -> None:
    (found,) = vacuum_findings(facts, "t")
    assert found.level is (Level.OK if said is None else Level.WARNING)
    assert said is None or (said in found.what and found.sql)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("on", "on", False, "off"), (Level.OK, Level.OK)),
        (("on", "off", False, "off"), (Level.OK, Level.WARNING)),
        (("off", "on", False, "off"), (Level.OK, Level.FAILURE)),
        (("on", "on", True, "off"), (Level.FAILURE, Level.OK)),
        (("on", "on", False, "on"), (Level.FAILURE, Level.OK)),
    ],
)
def test_postgres_is_asked_whether_it_takes_writes_and_keeps_them(
    settings: tuple[str, str, bool, str], expected: tuple[Level, Level]
) -> None:
    found = levels(postgres.settings_findings(*settings))
    assert (found["AC116"], found["AC111"]) == expected


def test_postgres_settings_of_a_session_are_seen(postgres_world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the statement asks is what the judgement takes."""
    judged = postgres.settings_findings  # a server that was started for this run has fsync off, which is worse
    monkeypatch.setattr(postgres, "settings_findings", lambda fsync, *others: judged("on", *others))
    postgres_world.url += "?options=-csynchronous_commit%3Doff"
    assert "synchronous_commit is off" in one("AC111", look(postgres_world)).what


# ---------------------------------------------------------------- MySQL


def test_mysql_tells_of_an_open_transaction_and_how_to_end_it(
    mysql_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql, "LONG", timedelta(0))
    world = World("threads", tmp_path, "mariadb", mysql_url)
    world.somebody.clear()
    made(world, "ill")
    with closing(world.somebody), closing(pymysql_connect(mysql_url)) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute("UPDATE ill_schema SET value = value")
        cursor.execute("SELECT CONNECTION_ID()")
        (number,) = cursor.fetchone()

        def told() -> list[Finding]:
            return [each for each in look(world, table="ill") if each.sql == f"KILL {number}"]

        # The server lists its transactions anew when nobody has read the list for a tenth of a second.
        found = until(told, what="a transaction that is told of")
        assert [(each.code, each.level) for each in found] == [("AC113", Level.WARNING)]


@pytest.mark.parametrize(
    ("settings", "code", "level"),
    [
        ({"innodb_flush_log_at_trx_commit": "1"}, "AC111", Level.OK),
        ({"innodb_flush_log_at_trx_commit": "2"}, "AC111", Level.WARNING),
        ({"read_only": "ON"}, "AC116", Level.FAILURE),
        ({"log_bin": "ON", "binlog_format": "STATEMENT"}, "AC120", Level.FAILURE),
        ({"log_bin": "ON", "binlog_format": "MIXED", "sync_binlog": "0"}, "AC120", Level.WARNING),
        ({"log_bin": "ON", "binlog_format": "ROW", "sync_binlog": "1"}, "AC120", Level.OK),
        ({"log_bin": "OFF", "binlog_format": "STATEMENT"}, "AC120", Level.OK),
    ],
)
def test_mysql_is_asked_whether_it_takes_writes_keeps_and_logs_them(
    settings: dict[str, str], code: str, level: Level
) -> None:
    assert levels(mysql.settings_findings(settings))[code] is level


# ---------------------------------------------------------------- SQLite


def test_sqlite_tells_how_a_users_connections_write(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    assert levels(Outbox(f"sqlite:///{path}").diagnose())["AC100"] is Level.FAILURE
    with Outbox(f"sqlite:///{path}") as outbox:
        found = levels(outbox.diagnose())
        assert (found["AC117"], found["AC111"], found["AC118"], found["AC119"]) == (Level.OK,) * 4
    other = tmp_path / "other.db"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(other, check_same_thread=False)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    with Outbox(connect) as outbox:
        findings = outbox.diagnose()
    assert "journal_mode is delete" in one("AC117", findings).what
    assert "synchronous is NORMAL" in one("AC111", findings).what


def test_sqlite_tells_of_a_network_disk_and_of_an_old_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "on the net"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    written = str(folder.resolve()).replace(" ", "\\040")
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/x {written} ext4 rw 0 0\nserver:/x {written} nfs4 rw 0 0\n")
    monkeypatch.setattr(sqlite, "MOUNTS", mounts)
    monkeypatch.setattr(sqlite, "CURRENT", (99, 0, 0))
    with Outbox(f"sqlite:///{folder}/outbox.db") as outbox:
        findings = outbox.diagnose()
    assert "is on a network disk (nfs4)" in one("AC118", findings).what
    assert one("AC119", findings).level is Level.WARNING
    assert sqlite.disk_of("/home/me/x.db", mounts.read_text()) == "ext4"


# ---------------------------------------------------------------- Redis


def test_redis_tells_what_it_keeps_and_drops_and_whether_the_outbox_is_there(redis_url: str, redis_table: str) -> None:
    with Outbox(redis_url, table=redis_table) as outbox:
        found = levels(outbox.diagnose())
    assert {found[code] for code in ("AC100", "AC101", "AC104", "AC116")} == {Level.OK}
    assert {"AC111", "AC122"} <= found.keys()
    absent = Outbox(redis_url, table=f"{redis_table}_none", create_schema=False)
    assert one("AC101", absent.diagnose()).level is Level.FAILURE
    absent.close()


@pytest.mark.parametrize(
    ("facts", "code", "level"),
    [
        ({"aof_enabled": "1"}, "AC111", Level.OK),
        ({"aof_enabled": "0"}, "AC111", Level.WARNING),
        ({"aof_enabled": "1", "aof_last_write_status": "err"}, "AC111", Level.FAILURE),
        ({"aof_enabled": "1", "role": "slave"}, "AC116", Level.FAILURE),
        ({"aof_enabled": "1", "role": "master"}, "AC116", Level.OK),
        ({"maxmemory": "100", "maxmemory_policy": "allkeys-lru"}, "AC122", Level.FAILURE),
        ({"maxmemory": "0", "maxmemory_policy": "allkeys-lru"}, "AC122", Level.OK),
        ({"maxmemory": "100", "used_memory": "95", "maxmemory_policy": "noeviction"}, "AC122", Level.WARNING),
        ({"maxmemory": "100", "used_memory": "50", "maxmemory_policy": "noeviction"}, "AC122", Level.OK),
    ],
)
def test_redis_is_judged_by_what_it_says_of_itself(facts: dict[str, str], code: str, level: Level) -> None:
    assert levels(of_redis(facts, [b"save", b"60 1"], "Redis"))[code] is level
