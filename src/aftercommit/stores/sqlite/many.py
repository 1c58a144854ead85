"""Many rows of one statement over sqlite3: all of them or none, in a transaction that goes on."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

#: An INSERT into a table of the outbox's own, whose number is the database's to give: always more than any before.
_NUMBERED: Final = re.compile(r'INSERT INTO (?P<table>"\w+") \(\s*event_id, [^?]*VALUES \([^()]*\?')

#: Groups that are worth a text of their own, which each connection keeps for a while.
_MANY: Final = 16

Rows = Sequence[Sequence[Any]]


def execute_all_or_none(raw: sqlite3.Connection, sql: str, rows: Rows) -> int:
    """A row that is refused takes those before it with it; what else the transaction has done stands."""
    if not raw.in_transaction:
        try:
            return raw.executemany(sql, rows).rowcount
        except BaseException:
            raw.rollback()  # the driver began by itself, so there is nothing else in it
            raise
    undo = _undo(sql)
    if undo is not None and len(rows) > 1:
        return _insert(raw, sql, rows, undo)
    raw.execute("SAVEPOINT aftercommit_many")
    try:
        count = raw.executemany(sql, rows).rowcount
    except BaseException:
        if raw.in_transaction:  # a full disk has ended it already
            raw.execute("ROLLBACK TO aftercommit_many")
            raw.execute("RELEASE aftercommit_many")
        raise
    raw.execute("RELEASE aftercommit_many")
    return count


def _insert(raw: sqlite3.Connection, sql: str, rows: Rows, undo: str) -> int:
    """Without a savepoint, for which SQLite would copy each page before it changes: as long again as the rows take."""
    first = raw.execute(sql, rows[0]).lastrowid  # refused, it leaves nothing
    try:
        return 1 + raw.executemany(*_said_once(sql, rows[1:])).rowcount
    except BaseException:
        if raw.in_transaction:  # in which nobody else writes
            try:
                raw.execute(undo, (first,))
            except BaseException:
                _end(raw)  # some of them would be worse than nothing at all
                raise
        raise


def _end(raw: sqlite3.Connection) -> None:
    raw.rollback()
    if raw.in_transaction and getattr(raw, "autocommit", -1) is True:  # where, since Python 3.12, that does nothing
        raw.execute("ROLLBACK")


@lru_cache(maxsize=128)
def _undo(sql: str) -> str | None:
    """Takes back all from a row on, where rows have rising numbers; None where that is not known."""
    found = _NUMBERED.match(sql)
    if found is None or "ON CONFLICT" in sql:
        return None
    return f"DELETE FROM {found['table']} WHERE rowid >= ?"  # noqa: S608


def _said_once(sql: str, rows: Rows) -> tuple[str, Rows]:
    """What is nothing for all, or the same plain word, stands in the statement and is not bound for each of them."""
    if len(rows) < _MANY:
        return sql, rows
    columns, kept = list(zip(*rows, strict=True)), []
    words: list[str | None] = []
    for column in columns:
        word = _word(column[0])
        if word is not None and column[0] is column[-1] and column.count(column[0]) == len(rows):
            words.append(word)
        else:
            words.append(None)
            kept.append(column)
    return _saying(sql, tuple(words)), list(zip(*kept, strict=True))


def _word(value: object) -> str | None:
    if value is None:
        return "NULL"
    return f"'{value}'" if type(value) is str and value.isascii() and value.isidentifier() else None


@lru_cache(maxsize=128)
def _saying(sql: str, words: tuple[str | None, ...]) -> str:
    parts = sql.split("?")
    said = [("?" if word is None else word) + part for word, part in zip(words, parts[1:], strict=True)]
    return parts[0] + "".join(said)
