"""SQL as data: one statement a file, its promise in the first line, its parameters by name."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aftercommit.stores.mysql.dialect import DIALECT as MYSQL
from aftercommit.stores.postgres.dialect import PSYCOPG
from aftercommit.stores.sql import statements
from aftercommit.stores.sql.changes import ByStatement
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.runs import RunsByStatement
from aftercommit.stores.sql.statements import Statement, Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT
from aftercommit.stores.sqlserver.dialect import DIALECT as SQLSERVER

DIALECTS = (DIALECT, PSYCOPG, MYSQL, SQLSERVER)
SHARED = {file.name: file.read_text("utf-8") for file in files("aftercommit.stores.sql").joinpath("sql").iterdir()}
FILES = SHARED | {file.name: file.read_text("utf-8") for file in files(DIALECT.package).joinpath("sql").iterdir()}
MIGRATIONS = {file.name: file.read_text("utf-8") for file in files(DIALECT.package).joinpath("migrations").iterdir()}


@pytest.fixture
def loaded() -> Statements:
    return Statements(DIALECT, TableNames("ob_x"))


def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, **dialect: Any) -> Statement:
    """One statement of an invented dialect."""
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "one.sql").write_text(text)
    monkeypatch.setattr(statements, "place_of", lambda package: str(tmp_path))
    monkeypatch.setattr(statements, "_texts", statements._texts.__wrapped__)  # and nothing of it is remembered
    return Statements(invented(**dialect), TableNames("ob_x"))["one"]


def invented(**dialect: Any) -> Dialect:
    options = {"name": "Invented", "package": "invented", "now": "clock()", "marker": lambda _: "?"}
    words = {"held": "unnest(:held) AS held", **dialect.pop("words", {})}
    return Dialect(**{**options, "changes": ByStatement, "runs": RunsByStatement, "words": words, **dialect})


# ---------------------------------------------------------------- the loader


def test_parameters_are_bound_in_the_order_of_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = load(tmp_path, monkeypatch, "-- P.\nSELECT :b, :a, :b, :long_name")
    assert statement.sql == "SELECT ?, ?, ?, ?"
    assert statement.names == ("b", "a", "b", "long_name")
    assert statement.bind(a=1, b=2, long_name=3, unused=4) == (2, 1, 2, 3)


def test_a_missing_value_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = load(tmp_path, monkeypatch, "-- P.\nSELECT :a, :b")
    with pytest.raises(KeyError, match="b"):
        statement.bind(a=1)


def test_a_dialect_writes_its_own_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-- P.\nSELECT :a, :b, :a"
    assert load(tmp_path, monkeypatch, text, marker=lambda number: f"${number}").sql == "SELECT $1, $2, $3"


def test_a_cast_is_no_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = load(tmp_path, monkeypatch, "-- P.\nSELECT :a::text, b::integer, '12:30'")
    assert statement.sql == "SELECT ?::text, b::integer, '12:30'"
    assert statement.names == ("a",)


def test_comments_are_stripped_before_parameters_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = load(
        tmp_path, monkeypatch, "-- Up to :limit rows of {unknown}.\n\n  -- More: :words\nSELECT 1\n-- end\n"
    )
    assert (statement.sql, statement.names) == ("SELECT 1", ())


def test_names_and_words_of_the_dialect_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "-- P.\nSELECT {now} FROM {table}, {schema_table}, {index:due}, {held}"
    statement = load(tmp_path, monkeypatch, text)
    assert statement.sql == 'SELECT clock() FROM "ob_x", "ob_x_schema", "ob_x_due", unnest(?) AS held'
    assert statement.names == ("held",)


def test_a_word_takes_what_stands_behind_its_colon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter or a column, for a time that is shifted."""
    words = {"now_plus": "later({now}, $)", "table_by": "{table} INDEXED BY {index:$}"}
    text = "-- P.\nSELECT {now_plus:delay}, {now_plus:held.delay}, {since:min(a)} FROM {table_by:due}"
    statement = load(tmp_path, monkeypatch, text, words=words)
    assert statement.sql == (
        'SELECT later(clock(), ?), later(clock(), held.delay), clock() - min(a) FROM "ob_x" INDEXED BY "ob_x_due"'
    )
    assert statement.names == ("delay",)


def test_a_dialect_says_more_about_a_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But where the statement does so itself."""
    text = "-- P.\nSELECT :many, :many::text[], :other"
    statement = load(tmp_path, monkeypatch, text, parameters={"many": "$::bigint"})
    assert statement.sql == "SELECT ?::bigint, ?::text[], ?"


def test_what_is_said_more_than_once_is_a_variable_where_a_dialect_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "-- P.\nSELECT :a, :b, {now} WHERE :a = :ab AND {now} > :ab AND :b = 1"
    statement = load(tmp_path, monkeypatch, text, variables={"now": "time", "a": "int", "ab": "bigint", "c": "text"})
    assert statement.sql == (
        "DECLARE @now time = clock(), @a int = ?, @ab bigint = ?;\n"
        "SELECT @a, ?, @now WHERE @a = @ab AND @now > @ab AND ? = 1"
    )
    assert statement.names == ("a", "ab", "b", "b")


def test_a_group_has_no_more_than_a_statement_names() -> None:
    loaded = Statements(replace(DIALECT, words={"held": "everything", "held_keys": "keys"}), TableNames("ob_x"))
    assert " FROM keys WHERE " in loaded["done"].sql.replace("\n", " ")
    assert " FROM everything WHERE " in loaded["retry"].sql.replace("\n", " ")


def test_a_file_of_the_dialects_own_wins_over_the_shared_one() -> None:
    shared = Statements(DIALECT, TableNames("ob_x"))["fleet_prolong"].sql
    assert shared == f'UPDATE "ob_x_partition" SET expires_at = {DIALECT.now} + ? WHERE owner = ?'
    assert Statements(PSYCOPG, TableNames("ob_x"))["fleet_prolong"].sql.startswith("WITH mine AS")


def test_no_shared_file_is_overruled_everywhere() -> None:
    own = [{file.name for file in files(each.package).joinpath("sql").iterdir()} for each in DIALECTS]
    assert not set(SHARED) & set.intersection(*own)


def test_an_unknown_word_is_an_error_when_the_store_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyError, match="tabel"):
        load(tmp_path, monkeypatch, "-- P.\nSELECT 1 FROM {tabel}")


def test_other_files_are_no_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sql").mkdir()
    for name in ("one.sql", "notes.md", "one.sql.orig"):
        (tmp_path / "sql" / name).write_text("-- P.\nSELECT 1")
    monkeypatch.setattr(statements, "place_of", lambda package: str(tmp_path))
    monkeypatch.setattr(statements, "_texts", statements._texts.__wrapped__)  # and nothing of it is remembered
    made = Statements(invented(), TableNames("ob_x"))
    assert made["one"].sql == "SELECT 1"
    with pytest.raises(KeyError):
        made["notes"]


# ---------------------------------------------------------------- the files of SQLite


def test_every_file_begins_with_its_promise() -> None:
    """A sentence of its own, then the statement, without remarks on the way."""
    for name in (*FILES, *MIGRATIONS):
        text = (FILES | MIGRATIONS)[name]
        first, *rest = text.splitlines()
        assert re.fullmatch(r"-- [A-Z].{10,}[.]", first), first
        assert text.isascii(), f"{name}: read the same wherever it is read"
        assert not [line for line in rest if "--" in line], name
        assert text.endswith("\n"), name


def test_every_file_has_one_statement() -> None:
    for name in FILES:
        assert name == name.lower(), name
        _, _, statement = FILES[name].partition("\n")
        assert ";" not in statement, name


@pytest.fixture
def database(loaded: Statements) -> Any:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in loaded.migrations():
            for statement in migration.statements:
                connection.execute(statement)
        yield connection


def test_every_statement_prepares(loaded: Statements, database: sqlite3.Connection) -> None:
    """With as many values as it names, on tables of another name."""
    for name in FILES:
        statement = loaded[name.removesuffix(".sql")]
        assert statement.sql.count("?") == len(statement.names), name
        assert "{" not in statement.sql, name
        database.execute(f"EXPLAIN {statement.sql}", [None] * len(statement.names))


def test_every_statement_is_used() -> None:
    """What nobody runs is deleted on the way."""
    source = "".join(path.read_text() for path in Path(statements.__file__).parents[1].rglob("*.py"))
    for name in FILES:
        assert f'"{name.removesuffix(".sql")}"' in source, name


def test_the_clock_of_the_database_is_utc_in_microseconds(database: sqlite3.Connection) -> None:
    """In whole milliseconds, as an integer, whatever this process takes for its time zone."""
    before = time.time()
    now = database.execute(f"SELECT {DIALECT.now}").fetchone()[0]
    assert isinstance(now, int)
    assert now % 1000 == 0
    assert before - 1 <= now / 1_000_000 <= time.time() + 1
