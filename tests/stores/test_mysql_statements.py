"""Every statement is what both MySQL and MariaDB read, and none does more than it says."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from aftercommit.events.claims import Lease, RowKey, Settlement
from aftercommit.events.outcome import DONE, Retry
from aftercommit.runtime.threads import run
from aftercommit.stores.mysql.dialect import DIALECT
from aftercommit.stores.sql.rows import to_micros
from aftercommit.stores.sql.statements import Statements, TableNames

NAMES = TableNames("outbox_event", "shop", DIALECT.quotes)
STATEMENTS = Statements(DIALECT, NAMES)
FILES = {
    file.name[:-4]: file.read_text()
    for package in ("aftercommit.stores.sql", DIALECT.package)
    for file in files(package).joinpath("sql").iterdir()
}

#: What a statement is read as.
KINDS = {
    "SELECT": exp.Query,
    "UPDATE": exp.Update,
    "DELETE": exp.Delete,
    "INSERT": exp.Insert,
    "SET": exp.Set,
    "SHOW": exp.Show,
}


def readable(sql: str) -> str:
    """sqlglot's grammar has no place for collations in JSON_TABLE, for index hints behind a join, and for a JSON_TABLE
    that is updated first; nor does it know how a transaction is set. What else there is it reads."""
    sql = re.sub(r"^SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED$", "SET x = 1", sql)
    sql = re.sub(r"CHARACTER SET utf8mb4 /\*.*?\*/ /\*.*?\*/", "", sql)
    return re.sub(r"FORCE INDEX \([^)]*\)", "", sql)


def test_a_statement_is_mysql() -> None:
    for name in FILES:
        parsed = sqlglot.parse(readable(STATEMENTS[name].sql.replace("%s", "?")), read="mysql")
        assert len(parsed) == 1, name
        assert isinstance(parsed[0], KINDS[STATEMENTS[name].sql.split()[0]]), name


@pytest.mark.parametrize("migration", STATEMENTS.migrations(), ids=lambda each: str(each.number))
def test_a_migration_is_mysql_and_can_be_run_again(migration: object) -> None:
    """DDL commits by itself: its work may be done already, after a crash."""
    for sql in migration.statements:
        if re.match(r"SET @aftercommit = IF\(", sql):
            looked, is_done, todo = sql.removesuffix(")").partition("'DO 0',")
            assert "information_schema." in looked
            assert is_done
            (parsed,) = sqlglot.parse(re.sub(r"/\*.*?\*/", "", todo.strip().strip("'")), read="mysql")
            assert isinstance(parsed, exp.Alter)
        elif not re.fullmatch(
            r"(PREPARE aftercommit FROM @aftercommit|EXECUTE aftercommit|DEALLOCATE \w+ \w+|SET .+lock_wait.+)", sql
        ):
            (parsed,) = sqlglot.parse(re.sub(r"/\*.*?\*/", "", sql), read="mysql")
            assert parsed.args["ignore" if isinstance(parsed, exp.Insert) else "exists"]


def test_a_statement_begins_with_its_promise() -> None:
    for name, text in FILES.items():
        assert re.match(r"-- [A-Z].*\.", text), name


def test_no_statement_has_what_one_of_the_two_does_not_know() -> None:
    """MySQL has no RETURNING, MariaDB no row alias and no OF behind FOR UPDATE; a percent sign is the driver's."""
    for name in FILES:
        sql = STATEMENTS[name].sql
        assert not re.search(
            r"\bRETURNING\b|\bAS new\b|FOR UPDATE OF|\|\||NOW\(|CURRENT_TIMESTAMP|SYSDATE", sql, re.I
        ), name
        assert "%" not in sql.replace("%s", ""), name
        assert '"' not in sql, f"{name}: which is a name under ANSI_QUOTES"


def test_every_name_of_a_table_is_quoted_and_qualified() -> None:
    for name in FILES:
        bare = re.sub(r"`shop`\.`outbox_\w+`|`outbox_event_\w+`", "", STATEMENTS[name].sql)
        assert "outbox" not in bare, name


def test_who_must_not_wait_does_not() -> None:
    """MySQL is told which table it locks: it takes a JSON_TABLE beside it for one that it locks twice (9.7)."""
    for name in ("renewable", "claim_select", "run_lock"):
        assert STATEMENTS[name].sql.endswith("FOR UPDATE /*!80000 OF `shop`.`outbox_event` */ SKIP LOCKED"), name


def test_every_settlement_carries_the_fence() -> None:
    for name in ("done", "delete", "retry", "defer", "dead", "release", "renew", "mark_suspect", "done_in_part"):
        for part in ("locked_by = held.owner", "lease_epoch = held.epoch", "status IN (0, 2)"):
            assert part in STATEMENTS[name].sql, name


class Server:
    """Takes every row of a group, and remembers the groups."""

    def __init__(self) -> None:
        self.groups: dict[str, str] = {}

    async def transact(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return await work(self)

    async def execute(self, sql: str, parameters: Sequence[str]) -> int:
        (self.groups[sql],) = parameters
        return len(json.loads(parameters[0]))


def test_a_group_is_in_the_order_of_its_index_and_no_delay_goes_past_the_calendar() -> None:
    server = Server()
    changes = DIALECT.changes(server, STATEMENTS, DIALECT, STATEMENTS["done"])  # type: ignore[arg-type]
    outcomes = [
        ("b", "", Retry(timedelta(microseconds=5), "no")),
        ("a", "z", Retry(timedelta.max, "no")),
        ("a", "b", DONE),
        ("a", "b", Retry(timedelta(0), "no", limit=2**40)),
        ("B", "", Retry(timedelta(days=999_999_999), "no")),
        ("B", "", DONE),
    ]
    settlements = [Settlement(Lease(RowKey(key, handler), "o", 1, 0.0), outcome) for key, handler, outcome in outcomes]
    assert run(changes.settle(settlements)) == ()
    longest = to_micros(timedelta.max)
    assert datetime.now() + timedelta(microseconds=longest) < datetime.max
    assert server.groups == {
        STATEMENTS["done"].sql: '[["B","","o",1,null,null,0,null],["a","b","o",1,null,null,0,null]]',
        STATEMENTS["retry"].sql: (
            f'[["B","","o",1,{longest},"no",null,null],["a","b","o",1,0,"no",2147483647,null],'
            f'["a","z","o",1,{longest},"no",null,null],["b","","o",1,5,"no",null,null]]'
        ),
    }
