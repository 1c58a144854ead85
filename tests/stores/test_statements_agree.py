"""What a statement writes does not depend on the database: the same columns, the same NULLs, the same constants."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import sqlglot
from msgspec.structs import replace
from sqlglot import exp

from aftercommit.stores.cockroachdb.dialect import PSYCOPG as COCKROACHDB
from aftercommit.stores.mysql.dialect import DIALECT as MYSQL
from aftercommit.stores.postgres.dialect import PSYCOPG as POSTGRES
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER
from aftercommit.stores.tidb.dialect import DIALECT as TIDB

#: What the parser calls each of them; and those that it knows by the name of their family.
GRAMMARS = {
    "sqlite": SQLITE,
    "postgres": POSTGRES,
    "mysql": MYSQL,
    "tsql": SQLSERVER,
    "tidb": TIDB,
    "crdb": COCKROACHDB,
}
FAMILY = {"tidb": "mysql", "crdb": "postgres"}

#: Statements that do the same under another name, where a database goes about it in another way.
SAME_AS = {
    "claim": "claim_mark",
    "insert_many": "insert",
    "insert_many_free": "insert_free",
    "insert_many_leased": "insert_leased",
    "replay_after": "replay",
    "replay_done": "replay",
    "replay_positions": "replay",
}

_WRITES = re.compile(r"\bINSERT INTO\b|\bSET\s+\S+ =", re.IGNORECASE)

#: What a statement writes: by INSERT or UPDATE, which column, and what.
Written = dict[tuple[str, str], str]


def rendered(dialect: Dialect) -> dict[str, str]:
    """All statements with a clock that is the same everywhere."""
    plain = replace(
        dialect,
        now="clock()",
        marker=lambda number: f"${number}" if dialect.array is not None else "?",
        is_row_by_row=False,  # so that it can be seen which of the values is meant
    )
    statements = Statements(plain, TableNames("outbox_event", None, dialect.quotes))
    return {name: statements[name].sql for name in statements if _WRITES.search(statements[name].sql)}


TEXTS = {grammar: rendered(dialect) for grammar, dialect in GRAMMARS.items()}

FAMILIES = sorted({SAME_AS.get(name, name) for texts in TEXTS.values() for name in texts})


def written(sql: str, grammar: str) -> Written:
    found: Written = {}
    for statement in sqlglot.parse(_readable(sql), read=FAMILY.get(grammar, grammar)):
        for each in statement.find_all(exp.Insert, exp.Update) if statement is not None else ():
            found |= dict(_inserted(each) if isinstance(each, exp.Insert) else _updated(each.expressions))
    return found


def _readable(sql: str) -> str:
    """Without what the parser's grammars have no place for, and which writes nothing."""
    sql = sql.replace("OVERRIDING SYSTEM VALUE", "")
    sql = re.sub(r"CHARACTER SET utf8mb4 /\*.*?\*/ /\*.*?\*/", "", sql)
    return re.sub(r"FORCE INDEX \([^)]*\)", "", sql)


def _inserted(insert: exp.Insert) -> Iterator[tuple[tuple[str, str], str]]:
    if not isinstance(insert.this, exp.Schema):
        return  # into a variable of T-SQL
    names = [each.name for each in insert.this.expressions]
    source = insert.expression
    values = source.expressions[0].expressions if isinstance(source, exp.Values) else source.expressions
    assert len(names) == len(values)
    yield from ((("INSERT", name), _meant(value)) for name, value in zip(names, values, strict=True))
    if conflict := insert.args.get("conflict"):
        given = dict(zip(names, values, strict=True))
        for (_, name), _ in _updated(conflict.expressions):
            (update,) = [each for each in conflict.expressions if each.this.name == name]
            value = update.expression
            is_excluded = isinstance(value, exp.Column) and value.table.lower() == "excluded"
            yield ("UPDATE", name), _meant(given[value.name] if is_excluded else value)


def _updated(assignments: list[exp.Expression]) -> Iterator[tuple[tuple[str, str], str]]:
    for each in assignments:
        assert isinstance(each, exp.EQ), each.sql()
        yield ("UPDATE", each.this.name), _meant(each.expression)


def _meant(value: exp.Expression) -> str:
    """NULL, a constant, a column that is counted up, and the clock are told apart; the rest is a value of the caller's,
    which each database gets in its own way."""
    value = value.unnest()
    while isinstance(value, exp.Cast):
        value = value.this.unnest()
    if isinstance(value, exp.Null):
        return "NULL"
    if isinstance(value, exp.Literal):
        return value.this
    if isinstance(value, exp.Add) and isinstance(value.this, exp.Column) and isinstance(value.expression, exp.Literal):
        return f"{value.this.name} + {value.expression.this}"
    if _is_clock(value):
        return "now"
    meant = "a time by the clock" if any(_is_clock(each) for each in value.walk()) else "a value"
    held = sorted({each.name for each in value.find_all(exp.Column) if each.table == "held"})
    return f"{meant}, of {', '.join(held)}" if held else meant


def _is_clock(value: exp.Expression) -> bool:
    return value.name.lower() in ("clock", "now") and isinstance(value, exp.Anonymous | exp.Parameter)


def disagreements(texts: dict[str, dict[str, str]], family: str) -> dict[tuple[str, str], dict[str, str | None]]:
    """The columns that are not written in the same way everywhere, and how each statement writes them."""
    found = {
        f"{grammar}/{name}": written(sql, grammar)
        for grammar, statements in texts.items()
        for name, sql in statements.items()
        if SAME_AS.get(name, name) == family
    }
    columns = {
        column: {name: each.get(column) for name, each in found.items()} for each in found.values() for column in each
    }
    return {column: values for column, values in columns.items() if len(set(values.values())) > 1}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_database_writes_the_same(family: str) -> None:
    assert disagreements(TEXTS, family) == {}


def test_what_writes_is_looked_at() -> None:
    """Every statement that writes writes something that was understood."""
    for grammar, statements in TEXTS.items():
        assert {"insert", "done", "retry", "defer", "dead", "release", "renew", "replay"} <= set(statements)
        assert ("fleet_take" in statements) == (not GRAMMARS[grammar].unordered)
        for name, sql in statements.items():
            assert written(sql, grammar), f"{grammar}/{name}"


@pytest.mark.parametrize(
    ("grammar", "name", "right", "wrong", "column"),
    [
        ("tsql", "fleet_give", "expires_at = clock()", "expires_at = NULL", "expires_at"),
        ("mysql", "dead", "status = 3", "status = 2", "status"),
        ("postgres", "replay_after", "attempts = 0, ", "", "attempts"),
        ("sqlite", "retry", "attempts + 1", "attempts + 2", "attempts"),
        ("sqlite", "claim_mark", "lease_epoch = lease_epoch + 1", "lease_epoch = lease_epoch", "lease_epoch"),
        ("mysql", "retry", "= held.error", "= held.done", "last_error"),
        ("tsql", "done", "done_at = clock()", "done_at = done_at", "done_at"),
        ("mysql", "fleet_join", "heartbeat_at = clock()", "heartbeat_at = NULL", "heartbeat_at"),
        ("postgres", "insert_many", "THEN clock() END", "THEN NULL END", "locked_at"),
    ],
)
def test_a_wrong_statement_is_found(grammar: str, name: str, right: str, wrong: str, column: str) -> None:
    sql = TEXTS[grammar][name]
    assert right in sql
    texts = {**TEXTS, grammar: {**TEXTS[grammar], name: sql.replace(right, wrong)}}
    assert [each for _, each in disagreements(texts, SAME_AS.get(name, name))] == [column]
