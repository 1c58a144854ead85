"""The statements for SQL Server as T-SQL, by a parser: there may be no server to ask. What a parser cannot see is left
to the conformance suite (test_sqlserver_contract.py)."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from itertools import dropwhile
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from aftercommit.stores.sql import statements
from aftercommit.stores.sql.statements import Statement, Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver.connection import BEGIN, ROLLBACK, SESSION
from aftercommit.stores.sqlserver.dialect import DIALECT

FOLDER = files(DIALECT.package)
FILES = {
    file.name: file.read_text("utf-8")
    for folder in (files("aftercommit.stores.sql"), FOLDER)
    for file in folder.joinpath("sql").iterdir()
}
MIGRATIONS = {file.name: file.read_text("utf-8") for file in FOLDER.joinpath("migrations").iterdir()}
NAMES = sorted(name.removesuffix(".sql") for name in FILES)

PLAIN = TableNames("outbox_event", None, DIALECT.quotes)
#: Words that mean something in T-SQL, as far as names may be odd.
ODD = TableNames("ORDER", "USER", DIALECT.quotes)

#: What each file is made of. A statement that the parser merely passes through would be a Command.
KINDS = {
    "insert": [exp.Declare, exp.Insert],
    "insert_free": [exp.Declare, exp.Insert],
    "insert_leased": [exp.Declare, exp.Insert],
    "insert_unique": [exp.Declare, exp.Insert],
    "unique_holder": [exp.Select],
    "unwrite": [exp.Declare, exp.Delete],
    "claim": [exp.Declare, exp.Update],
    "done": [exp.Update],
    "delete": [exp.Delete],
    "retry": [exp.Declare, exp.Update],
    "defer": [exp.Update],
    "dead": [exp.Update],
    "release": [exp.Update],
    "renew": [exp.Declare, exp.Update],
    "mark_suspect": [exp.Update],
    "done_in_part": [exp.Update],
    "surviving": [exp.Select],
    "next_due": [exp.Declare, exp.Select],
    "query_dead": [exp.Declare, exp.Select],
    "count_dead": [exp.Declare, exp.Select],
    "query_pending": [exp.Declare, exp.Select],
    "count_pending": [exp.Declare, exp.Select],
    "query": [exp.Declare, exp.Select],
    "find": [exp.Select],
    "summary": [exp.Declare, exp.Union],
    "replay_done": [exp.Declare, exp.Update],
    "add_failure": [exp.Insert],
    "trim_failures": [exp.Declare, exp.Delete],
    "forget_failures": [exp.Delete],
    "forget_orphans": [exp.Declare, exp.Delete],
    "failures": [exp.Declare, exp.Select],
    "cancel": [exp.Declare, exp.Update],
    "withdraw": [exp.Declare, exp.Delete],
    "replay": [exp.Declare, exp.Update],
    "replay_after": [exp.Declare, exp.Update],
    "discard": [exp.Declare, exp.Update],
    "purge": [exp.Declare, exp.Declare, exp.Delete],
    "purge_aged": [exp.Declare, exp.Delete],
    "backlog": [exp.Declare, exp.Select],
    "count_done": [exp.Select],
    "count_done_before": [exp.Declare, exp.Select],
    "holders": [exp.Declare, exp.Select],
    "waiting": [exp.Select],
    "server_version": [exp.Select],
    "clock": [exp.Select],
    "indexes": [exp.Select],
    "tables": [exp.Select],
    "pending": [exp.Select],
    "has_table": [exp.Select],
    "objects": [exp.Declare, exp.Union],
    "pause": [exp.Declare, exp.Update, exp.Insert],
    "pauses": [exp.Declare, exp.Select],
    "resume": [exp.Delete],
    "forget_pauses": [exp.Delete],
    "hasten": [exp.Declare, exp.Update],
    "settings": [exp.Select],
    "set_setting": [exp.Declare, exp.Update, exp.Insert],
    "schema_lock": [exp.Declare, exp.Execute],
    "heads": [exp.Declare] * 3 + [exp.Insert, exp.WhileBlock],
    "run_candidates": [exp.Declare, exp.Select],
    "run_lock": [exp.Declare, exp.Select],
    "claim_mark": [exp.Declare, exp.Update],
    "pass_over": [exp.Update],
    "blocked": [exp.Select],
    "fleet_join": [exp.Declare, exp.Update, exp.Insert],
    "fleet_beat": [exp.Update],
    "fleet_prolong": [exp.Declare, exp.Update],
    "fleet_owned": [exp.Select],
    "fleet_members": [exp.Select],
    "fleet_partitions": [exp.Select],
    "fleet_take": [exp.Declare, exp.Update],
    "fleet_give": [exp.Update],
    "fleet_give_all": [exp.Update],
    "fleet_leave": [exp.Delete],
    "fleet_silent": [exp.Declare, exp.Select],
    "fleet_bury": [exp.Declare, exp.Delete],
    "fleet_lags": [exp.Select],
    "duty": [exp.Select],
    "duty_take": [exp.Update],
    "duty_found": [exp.Declare, exp.Insert],
}

SIDES = ("schema", "instance", "partition", "failure", "pause")

PICKING = ("UPDLOCK", "READPAST", "ROWLOCK", "READCOMMITTEDLOCK")
READING = ("READPAST", "READCOMMITTEDLOCK")

#: The hints of each statement's tables, in the order of the text.
HINTS = {
    "claim": [(*PICKING, "INDEX")],
    "insert_unique": [("UPDLOCK", "HOLDLOCK", "INDEX")],
    "done": [("ROWLOCK",)],
    "delete": [("ROWLOCK",)],
    "retry": [("ROWLOCK",)],
    "defer": [("ROWLOCK",)],
    "dead": [("ROWLOCK",)],
    "release": [("ROWLOCK",)],
    "mark_suspect": [("ROWLOCK",)],
    "done_in_part": [("ROWLOCK",)],
    "renew": [PICKING],
    "replay_after": [PICKING],
    "purge": [("ROWLOCK",), PICKING, PICKING],
    "purge_aged": [("ROWLOCK",), PICKING],
    "next_due": [READING],
    "query_dead": [READING],
    "count_dead": [READING],
    "query_pending": [READING],
    "count_pending": [READING],
    "query": [READING],
    "find": [READING],
    "summary": [READING, READING],
    "backlog": [READING, READING],
    "count_done": [READING],
    "duty_found": [("UPDLOCK", "HOLDLOCK")],
    "count_done_before": [READING],
    "holders": [READING],
    "waiting": [READING],
    "pending": [READING],
    "heads": [(*READING, "INDEX")] * 3,
    "run_candidates": [("READUNCOMMITTED", "INDEX")] * 2,
    "run_lock": [(*PICKING, "FORCESEEK")],
    "claim_mark": [("ROWLOCK",)],
    "pass_over": [("ROWLOCK",)],
    "blocked": [READING] * 3,
    "fleet_take": [PICKING],
    "fleet_give": [("ROWLOCK",)],
    "fleet_lags": [READING],
}

#: The parser does not know THROW; what is left of it is looked at by hand.
THROW = re.compile(r"IF @outcome < 0 THROW 51222, '[^']+', 1\Z")


@pytest.fixture(params=[PLAIN, ODD], ids=["plain", "odd"])
def names(request: pytest.FixtureRequest) -> TableNames:
    return request.param


@cache
def load(names: TableNames) -> Statements:
    return Statements(DIALECT, names)


@pytest.fixture
def loaded(names: TableNames) -> Statements:
    return load(names)


@cache
def parsed(sql: str) -> list[exp.Expression]:
    return [each for each in sqlglot.parse(THROW.sub("", sql), dialect="tsql") if each is not None]


def last(statement: Statement) -> exp.Expression:
    return parsed(statement.sql)[-1]


def outputs(update: exp.Expression) -> list[exp.Expression]:
    returning = update.args["returning"]
    return list(returning.expressions)


# ---------------------------------------------------------------- the files


def test_every_file_begins_with_its_promise() -> None:
    for name in (*FILES, *MIGRATIONS):
        text = (FILES | MIGRATIONS)[name]
        first, *rest = text.splitlines()
        rest = list(dropwhile(lambda line: line.startswith("--"), rest))
        assert re.fullmatch(r"-- [A-Z].{10,}[.]", first), first
        assert text.isascii(), f"{name}: read the same wherever it is read"
        assert not [line for line in rest if "--" in line], name
        assert text.endswith("\n"), name
        assert max(map(len, text.splitlines())) <= 125, name


def test_every_statement_is_used() -> None:
    source = "".join(path.read_text() for path in Path(statements.__file__).parent.rglob("*.py"))
    for name in NAMES:
        assert f'"{name}"' in source, name


def test_every_statement_of_a_store_that_returns_rows_is_there() -> None:
    """Those that are run by name; SQLite works in steps and has others for these."""
    in_steps = {"claim_select", "renewable", "replayable", "replay_positions"}
    # It cannot keep others from writing a key, and so does not ask whether an event is the first of one.
    in_steps |= {"busy_keys"}
    # What only a file has to tell of itself; its clock is the host's.
    in_steps |= {"journal_mode", "synchronous", "files"}
    at_once = {"claim", "replay_after", "schema_lock", "pass_over", "clock"}
    sqlite = set(Statements(SQLITE, TableNames("ob_x")))
    assert set(NAMES) == set(KINDS) == (sqlite - in_steps) | at_once


# ---------------------------------------------------------------- as T-SQL


def test_every_statement_is_t_sql(loaded: Statements) -> None:
    for name in NAMES:
        found = parsed(loaded[name].sql)
        assert [type(each) for each in found] == KINDS[name], name
        assert not [each for one in found for each in one.find_all(exp.Command)], f"{name}: the parser gave up"


def test_every_parameter_has_a_marker(loaded: Statements) -> None:
    for name in NAMES:
        statement = loaded[name]
        markers = [each for one in parsed(statement.sql) for each in one.find_all(exp.Placeholder)]
        assert len(markers) == statement.sql.count("?") == len(statement.names), name
        assert "{" not in statement.sql, name
        assert not re.search(r"(?<![:\w]):\w", statement.sql), f"{name}: a parameter that was not seen"


def test_a_statement_names_every_parameter_once(loaded: Statements) -> None:
    """A marker has one type for the driver to find out, whether its value is NULL or not."""
    for name in NAMES:
        assert len(set(loaded[name].names)) == len(loaded[name].names), name


def test_variables_are_declared_before_they_are_used(loaded: Statements) -> None:
    """And none is used in the DECLARE that declares it, where the server does not know it yet."""
    for name in NAMES:
        known: set[str] = set()
        for one in parsed(loaded[name].sql):
            if isinstance(one, exp.Execute):
                continue  # names of the procedure's arguments look the same
            declared = [each for item in one.expressions for each in item.this] if isinstance(one, exp.Declare) else []
            new = {each.name for each in declared}
            used = [
                each.name
                for each in one.find_all(exp.Parameter)
                if not any(each is it for it in declared) and each.name.islower()  # @@ROWCOUNT is the server's own
            ]
            assert set(used) <= known, name
            known |= new


def test_tables_are_quoted_and_in_their_schema(names: TableNames, loaded: Statements) -> None:
    for name in NAMES:
        for table in (each for one in parsed(loaded[name].sql) for each in one.find_all(exp.Table)):
            if table.name.lower() in (names.table.lower(), *(names.side(each).lower() for each in SIDES)):
                assert table.this.args["quoted"], table.sql()
                assert table.db == (names.schema or ""), name


def test_hints_stand_where_they_are_promised_and_nowhere_else(loaded: Statements) -> None:
    """READPAST in a database that reads snapshots is refused without READCOMMITTEDLOCK. Inserts have none."""
    for name in NAMES:
        found = [
            tuple(hint.name.upper() for hint in table.expressions)
            for one in parsed(loaded[name].sql)
            for table in one.find_all(exp.WithTableHint)
        ]
        in_text = re.findall(r"WITH \(((?:[A-Z]+(?:, )?)+(?:\(\[\w+\]\))?)\)", loaded[name].sql)
        promised = HINTS.get(name, [])
        assert sorted(found) == sorted(promised), name
        assert [tuple(re.findall(r"[A-Z]{4,}(?![\w\]])", each)) for each in in_text] == promised, name
        for hints in found:
            assert "READPAST" not in hints or "READCOMMITTEDLOCK" in hints, name


# ---------------------------------------------------------------- claim


def test_a_claim_returns_the_columns_that_every_claim_returns(loaded: Statements) -> None:
    """In the order of SQLite's; the lease as it was before, and the clock last."""
    select = sqlglot.parse_one(Statements(SQLITE, TableNames("ob_x"))["claim_select"].sql, dialect="sqlite")
    theirs = [each.name if isinstance(each, exp.Column) else "" for each in select.expressions]
    ours = [each.name if isinstance(each, exp.Column) else "" for each in outputs(last(loaded["claim"]))]
    assert ours == theirs
    assert [number for number, name in enumerate(ours) if not name] == [22, 23], "whether it is taken over, and now"
    columns = [each for each in outputs(last(loaded["claim"])) if isinstance(each, exp.Column)]
    assert {each.table for each in columns} == {"deleted"}


def test_a_claim_goes_by_the_index_of_what_is_pending(names: TableNames, loaded: Statements) -> None:
    claim = last(loaded["claim"])
    due = claim.find(exp.CTE).this
    assert [each.this.name for each in due.args["order"].expressions] == ["available_at", "position"]
    assert not any(each.args.get("desc") for each in due.args["order"].expressions)
    assert "status IN (0, 2)" in due.args["where"].sql("tsql"), "literally, as the filter of the index says it"
    assert f"INDEX([{names.table}_pending])" in loaded["claim"].sql
    assert due.args["limit"].args["expression"].find(exp.Placeholder) is not None
    assert claim.this.name == claim.find(exp.CTE).alias == "due"


def test_a_settle_returns_the_rows_that_it_changed(loaded: Statements) -> None:
    for name in ("done", "retry", "defer", "dead", "release", "renew", "delete"):
        side = "deleted" if name == "delete" else "inserted"
        assert [each.sql() for each in outputs(last(loaded[name]))] == [f"{side}.event_id", f"{side}.handler_id"], name


def test_a_replay_returns_positions(loaded: Statements) -> None:
    assert [each.sql() for each in outputs(last(loaded["replay_after"]))] == ["inserted.position"]


def test_only_what_is_asked_for_returns_rows(loaded: Statements) -> None:
    for name in [name for name, kinds in KINDS.items() if exp.Update in kinds and name != "claim"]:
        counted = {
            "mark_suspect",
            "replay",
            "replay_done",
            "cancel",
            "discard",
            "set_setting",
            "claim_mark",
            "pass_over",
        }
        counted |= {"hasten", "pause"}
        counted |= {name for name in KINDS if name.startswith(("fleet_", "duty_"))}
        assert (last(loaded[name]).args.get("returning") is None) == (name in counted), name


def test_the_fence_stands_in_every_change_of_a_held_row(names: TableNames, loaded: Statements) -> None:
    for name in ("done", "retry", "defer", "dead", "release", "renew", "mark_suspect", "delete", "done_in_part"):
        sql, table = loaded[name].sql, names.qualified(names.table)
        for part in (
            f"{table}.event_id = held.event_id",
            f"{table}.handler_id = held.handler_id",
            "locked_by = held.owner",
            "lease_epoch = held.epoch",
            "status IN (0, 2)",
            "ids_size = held.size",
        ):
            assert part in sql, part


def test_held_rows_have_the_columns_that_are_bound(loaded: Statements) -> None:
    from aftercommit.stores.sql.rows import HELD_COLUMNS

    paths = re.findall(r"(\w+) \w+(?:\(\w+\))? '\$\[(\d)\]'", DIALECT.words["held"])
    assert [name for name, _ in paths] == list(HELD_COLUMNS)
    assert [int(number) for _, number in paths] == list(range(len(HELD_COLUMNS)))


# ---------------------------------------------------------------- the tables


def test_every_migration_is_t_sql(loaded: Statements) -> None:
    kinds = [type(one) for each in loaded.migrations() for sql in each.statements for one in parsed(sql)]
    events = [exp.Set] * 7 + [exp.Create] * 2 + [exp.Alter] + [exp.Create] * 4
    order, fleet = [exp.Alter] + [exp.Create] * 2, [exp.Create] * 2 + [exp.Insert]
    failures_and_pauses = [exp.Create] * 3
    unique = [exp.Alter] * 2 + [exp.Create]
    assert kinds == events + order + fleet + failures_and_pauses + unique


def columns_of(loaded: Statements, number: int) -> dict[str, exp.ColumnDef]:
    creates = [one for each in loaded.migrations() for sql in each.statements for one in parsed(sql)]
    tables = [one for one in creates if isinstance(one, exp.Create) and one.args["kind"] == "TABLE"]
    return {each.name: each for each in tables[number].this.expressions if isinstance(each, exp.ColumnDef)}


def test_the_table_has_the_columns_of_every_store(loaded: Statements) -> None:
    """And the sizes of the ids, which the server computes."""
    made = sqlglot.parse(";".join(Statements(SQLITE, TableNames("ob_x")).migrations()[0].statements), dialect="sqlite")
    theirs = {each.name for each in made[1].this.expressions if isinstance(each, exp.ColumnDef)}
    assert set(columns_of(loaded, 1)) == theirs | {"ids_size"}


def test_names_compare_by_their_units_and_have_room_for_two_each(loaded: Statements) -> None:
    """An emoji is one character and two units."""
    sizes = {
        "event_id": 36,
        "handler_id": 255,
        "event_type": 128,
        "aggregate_type": 64,
        "aggregate_id": 128,
        "tenant_id": 64,
        "event_key": 255,
        "locked_by": 128,
    }
    columns = columns_of(loaded, 1)
    for column, characters in sizes.items():
        expected = f"NVARCHAR({2 * characters}) COLLATE Latin1_General_100_BIN2"
        assert expected in columns[column].sql("tsql"), column


def test_texts_have_no_limit(loaded: Statements) -> None:
    for column in ("payload", "headers", "done_handlers", "last_error"):
        assert columns_of(loaded, 1)[column].sql("tsql").upper() == f"{column} NVARCHAR(MAX)".upper(), column


def test_times_have_microseconds_and_no_zone(loaded: Statements) -> None:
    times = [name for name in columns_of(loaded, 1) if name.endswith("_at") or name == "lease_until"]
    assert len(times) == 7
    for name in times:
        assert "DATETIME2(6)" in columns_of(loaded, 1)[name].sql("tsql")


def test_indexes_are_filtered_literally(names: TableNames, loaded: Statements) -> None:
    script = "\n".join(loaded.migrations()[0].statements)
    table = re.escape(names.qualified(names.table))
    found = re.findall(rf"CREATE (UNIQUE )?INDEX \[{names.table}_(\w+)\] ON {table} \((.+?)\)(?: WHERE (.+))?", script)
    assert found == [
        ("UNIQUE ", "event", "event_id, handler_id, ids_size", ""),
        ("", "pending", "available_at, position", "status IN (0, 2)"),
        ("", "ended", "status, done_at", "status IN (1, 3)"),
        ("", "dead", "position", "status = 3"),
    ]


def test_ids_of_any_size_have_a_size_of_their_own() -> None:
    """The computed column packs two sizes in one number."""
    assert 2 * 2 * 255 < 2048
    assert "DATALENGTH(event_id) * 2048 + DATALENGTH(handler_id)" in DIALECT.words["held"]
    assert "ids_size AS (DATALENGTH(event_id) * 2048 + DATALENGTH(handler_id))" in MIGRATIONS["0001_events.sql"]


# ---------------------------------------------------------------- the session


def test_the_session_has_what_filtered_indexes_ask_for() -> None:
    on = re.search(r"SET ([A-Z_, ]+) ON;", SESSION)
    off = re.search(r"SET ([A-Z_, ]+) OFF;", SESSION)
    assert on is not None
    assert off is not None
    asked = {
        "ANSI_NULLS",
        "ANSI_PADDING",
        "ANSI_WARNINGS",
        "ARITHABORT",
        "CONCAT_NULL_YIELDS_NULL",
        "QUOTED_IDENTIFIER",
    }
    assert set(on[1].split(", ")) == asked
    assert "NUMERIC_ROUNDABORT" in off[1]
    for option in (*asked, "NUMERIC_ROUNDABORT"):
        wanted = "OFF" if option == "NUMERIC_ROUNDABORT" else "ON"
        assert f"SET {option} {wanted};" in MIGRATIONS["0001_events.sql"], "people run the script by hand, too"


def test_a_session_begins_outside_of_transactions() -> None:
    assert SESSION.startswith(f"{ROLLBACK};")
    assert f"{SESSION} BEGIN TRANSACTION" == BEGIN
