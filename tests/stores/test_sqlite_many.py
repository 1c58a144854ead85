"""Many rows of one INSERT on SQLite: all of them or none, in a transaction that goes on."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.stores.sqlite.many import execute_all_or_none

INSERT = 'INSERT INTO "t" (event_id, a, b, c, n) VALUES (?, ?, coalesce(?, 7), CASE WHEN ? IS NOT NULL THEN 1 END, (2))'

TABLE = """
CREATE TABLE t (number INTEGER PRIMARY KEY AUTOINCREMENT, event_id TEXT UNIQUE, a, b, c, n);
CREATE TABLE log (n);
INSERT INTO t (event_id) VALUES ('before')
"""


@pytest.fixture
def raw() -> Iterator[sqlite3.Connection]:
    made = made_in()
    yield made
    made.close()


def made_in(place: str | Path = ":memory:") -> sqlite3.Connection:
    made = sqlite3.connect(place, isolation_level=None)
    made.executescript(TABLE)
    return made


def ids(raw: sqlite3.Connection) -> list[str]:
    return [row[0] for row in raw.execute("SELECT event_id FROM t ORDER BY number")]


def rows(*names: str) -> list[tuple[Any, ...]]:
    return [(name, "a", None, 3) for name in names]


@pytest.mark.parametrize("size", [2, 20, 100])
@pytest.mark.parametrize("refused", [0, 1, -1], ids=["the first", "the second", "the last"])
@pytest.mark.parametrize("value", ["before", object()], ids=["is there", "cannot be bound"])
def test_a_refused_row_takes_all_of_its_group_and_nothing_else(
    raw: sqlite3.Connection, size: int, refused: int, value: Any
) -> None:
    group = rows(*map(str, range(size)))
    group[refused] = (value, "a", None, 3)
    raw.execute("BEGIN")
    execute_all_or_none(raw, INSERT, rows("mine", "too"))
    raw.execute("INSERT INTO log VALUES (1)")
    with pytest.raises(sqlite3.Error):
        execute_all_or_none(raw, INSERT, group)
    assert raw.in_transaction
    assert execute_all_or_none(raw, INSERT, rows("again", "and", "again too")) == 3
    raw.execute("COMMIT")
    assert ids(raw) == ["before", "mine", "too", "again", "and", "again too"]
    assert raw.execute("SELECT count(*) FROM log").fetchone() == (1,)


def test_a_transaction_that_has_ended_stays_ended(raw: sqlite3.Connection) -> None:
    raw.execute(
        "CREATE TRIGGER over BEFORE INSERT ON t WHEN new.event_id = '3' BEGIN SELECT RAISE(ROLLBACK, 'disk'); END"
    )
    raw.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="disk"):
        execute_all_or_none(raw, INSERT, rows(*"12345"))
    assert not raw.in_transaction
    assert ids(raw) == ["before"]


def test_what_cannot_be_taken_back_takes_the_transaction_with_it(raw: sqlite3.Connection) -> None:
    """Some rows of a group would be worse than none."""
    raw.execute("CREATE TRIGGER kept BEFORE DELETE ON t BEGIN SELECT RAISE(ABORT, 'kept'); END")
    raw.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError, match="kept"):
        execute_all_or_none(raw, INSERT, rows("1", "2", "1"))
    assert not raw.in_transaction
    assert ids(raw) == ["before"]


def test_rows_that_an_open_savepoint_has_before_it_stay(raw: sqlite3.Connection) -> None:
    raw.execute("BEGIN")
    execute_all_or_none(raw, INSERT, rows("1", "2"))
    raw.execute("SAVEPOINT s")
    execute_all_or_none(raw, INSERT, rows("3", "4"))
    with pytest.raises(sqlite3.IntegrityError):
        execute_all_or_none(raw, INSERT, rows("5", "6", "5"))
    raw.execute("ROLLBACK TO s")
    raw.execute("COMMIT")
    assert ids(raw) == ["before", "1", "2"]


@pytest.mark.parametrize("sql", ["UPDATE t SET a = ? WHERE event_id = ?", "INSERT INTO log VALUES (?1 + length(?2))"])
def test_other_statements_are_all_or_none_too(raw: sqlite3.Connection, sql: str) -> None:
    raw.execute("CREATE TRIGGER no BEFORE INSERT ON log WHEN new.n > 5 BEGIN SELECT RAISE(ABORT, 'no'); END")
    raw.execute("CREATE TRIGGER neither BEFORE UPDATE ON t WHEN new.a > 5 BEGIN SELECT RAISE(ABORT, 'no'); END")
    raw.execute("BEGIN")
    with pytest.raises(sqlite3.IntegrityError):
        execute_all_or_none(raw, sql, [(0, "before"), (9, "before")])
    raw.execute("COMMIT")
    assert raw.execute("SELECT count(*) FROM log").fetchone() == (0,)
    assert raw.execute("SELECT a FROM t").fetchone() == (None,)


@pytest.mark.parametrize("value", ["Word", "it's", "', 'x", "?", "", "é", None, 1, b"raw", "NULL"])
def test_what_all_rows_of_a_large_group_share_is_as_it_was_given(raw: sqlite3.Connection, value: object) -> None:
    raw.execute("BEGIN")
    execute_all_or_none(raw, INSERT, [(str(number), value, value, value) for number in range(40)])
    found = raw.execute("SELECT DISTINCT a, b, c FROM t WHERE event_id <> 'before'").fetchall()
    assert found == [(value, 7 if value is None else value, None if value is None else 1)]


VALUES = st.sampled_from([None, "Word", "it's", "?", "", "é", "a\x00b", 1, 0, 1.5, b"raw", "NULL", "1"])


@given(st.data(), st.integers(2, 40), st.lists(VALUES, min_size=3, max_size=3))
def test_rows_are_as_they_were_given_however_many_share_a_value(
    data: st.DataObject, size: int, shared: list[Any]
) -> None:
    varied = data.draw(st.lists(st.booleans(), min_size=3, max_size=3))
    group = [
        (
            str(number),
            *(data.draw(VALUES) if is_varied else each for is_varied, each in zip(varied, shared, strict=True)),
        )
        for number in range(size)
    ]
    ours, plain = made_in(), made_in()
    ours.execute("BEGIN")
    assert execute_all_or_none(ours, INSERT, group) == size
    plain.executemany(INSERT, group)
    everything = "SELECT *, typeof(a), typeof(b), typeof(c) FROM t ORDER BY number"
    assert ours.execute(everything).fetchall() == plain.execute(everything).fetchall()
    ours.close()
    plain.close()
