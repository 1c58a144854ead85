"""How an event of a key is born leased: its writer locks the key until its transaction ends, and a statement behind the
lock looks whether anything of the key is unfinished."""

from __future__ import annotations

from collections.abc import Iterator

from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import Rules, instance, name_of, with_copy, with_row
from tests.model.state import Copy, Memory, Row, Status, Table, Writing


def write_first(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """Lock, INSERT, commit, each by itself. The other instances write in the same way, and strangers between them."""
    if not rules.world.has_hot_keys or all(row.status is not Status.UNWRITTEN for row in table.rows):
        return
    writing = memory.writing
    if writing is None:
        yield from _begin(rules, me, table, memory)
    elif writing.is_first is None:
        yield _insert(rules, me, table, memory)
    elif writing.is_locked or Bug.LOOK_WITHOUT_LOCK in rules.bugs:
        yield from _end(rules, me, table, memory, is_first=writing.is_first)
    elif table.lock is None:
        locked = memory._replace(writing=writing._replace(is_locked=True))
        yield Step(f"{instance(me)} gets the lock on the key", table._replace(lock=me), locked)


def _begin(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    if Bug.LOOK_WITHOUT_LOCK in rules.bugs or Bug.LOOK_AND_LOCK_AT_ONCE in rules.bugs:
        yield _insert(rules, me, table, memory._replace(writing=Writing()))
    elif table.lock is None:
        locked = memory._replace(writing=Writing(is_locked=True))
        yield Step(f"{instance(me)} locks the key", table._replace(lock=me), locked)


def _insert(rules: Rules, me: int, table: Table, memory: Memory) -> Step:
    """Its snapshot is as old as the statement."""
    writing = memory.writing or Writing()
    is_first = memory.believes and not any(_is_before(rules, row) for row in table.rows)
    is_first = is_first or Bug.NOBODY_LOOKS in rules.bugs
    if Bug.LOCK_ENDS_EARLY in rules.bugs:
        table = table._replace(lock=None)
    words = f"{instance(me)} inserts an event and finds its key {'free of others' if is_first else 'not free'}"
    return Step(words, table, memory._replace(writing=writing._replace(is_first=is_first)))


def _is_before(rules: Rules, row: Row) -> bool:
    """Whether it keeps the next event of its key from being born leased."""
    if row.status is Status.DEAD:
        return rules.world.blocks and Bug.LOOK_PASSES_DEAD not in rules.bugs
    if row.owner is not None and Bug.LOOK_PASSES_LEASED in rules.bugs:
        return False
    return row.is_unfinished


def _end(rules: Rules, me: int, table: Table, memory: Memory, *, is_first: bool) -> Iterator[Step]:
    place = next(place for place, row in enumerate(table.rows) if row.status is Status.UNWRITTEN)
    ended = memory._replace(writing=None)
    unlocked = table._replace(lock=None) if table.lock == me else table
    born = with_row(unlocked, place, Row(Status.NEW, owner=me if is_first else None))
    words = f"{instance(me)} commits {name_of(place)}, born {'leased' if is_first else 'free'}"
    yield Step(words, born, with_copy(ended, place, Copy()) if is_first else ended)
    if is_first and rules.world.loses_answers:
        yield Step(f"{words}, and does not see the commit", born, ended, is_fault=True)
    yield Step(f"{instance(me)} rolls back what it wrote", unlocked, ended, is_fault=True)
