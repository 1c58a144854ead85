"""The way from one version of the schema to another, up or down, for people who run their own migrations. Two numbers
mean the same way for ever, whatever later releases add."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from aftercommit.errors import InvalidOption
from aftercommit.events.claims import HASH_NAME, PARTITION_COUNT
from aftercommit.events.order import Order
from aftercommit.stores.sql.statements import Statements, TableNames

#: The oldest schema, and the oldest code, that go together with this release.
OLDEST_CODE: Final = 1

#: The oldest code that knows of order.
OLDEST_WITH_ORDER: Final = 2


class Step(NamedTuple):
    """One statement."""

    sql: str
    #: It runs outside of transactions, while others write.
    is_online: bool = False


def steps_between(
    sql: Statements,
    names: TableNames,
    order: Order,
    *,
    from_version: int = 0,
    to_version: int | None = None,
) -> list[Step]:
    """The statements in order. Version 0 is none: from there they make tables that nobody uses yet, and to there they
    drop them with every event. Between others the tables may be in use, and what can run beside writers does."""
    newest = sql.migrations()[-1].number
    last = newest if to_version is None else to_version
    _refuse_unknown(from_version, last, newest)
    if from_version == last:
        return []
    if last < from_version:
        return list(_down(sql, names, from_version, last))
    if from_version == 0:
        return list(_new(sql, names, order, last))
    return list(_up(sql, names, from_version, last))


def script_of(steps: Sequence[Step]) -> str:
    """Statements as one text."""
    return "\n\n".join(f"{step.sql};" for step in steps) + "\n" if steps else ""


def facts_of(order: Order) -> dict[str, str]:
    """What the schema table is to say of it."""
    oldest = OLDEST_WITH_ORDER if order.ordered else OLDEST_CODE
    return {"ordered": str(int(order.ordered)), "on_dead": order.on_dead, "oldest_code": str(oldest)}


def lasting_facts() -> dict[str, str]:
    """What a new table keeps for ever, beside its id."""
    return {"partitions": str(PARTITION_COUNT), "hash": HASH_NAME}


def _new(sql: Statements, names: TableNames, order: Order, last: int) -> Iterator[Step]:
    if order.ordered and last < OLDEST_WITH_ORDER:
        raise InvalidOption(
            f"ordered is True, and version {last} of the schema knows no order",
            fix=f"to_version={OLDEST_WITH_ORDER} or later",
        )
    for migration in sql.migrations()[:last]:
        yield from (Step(each.replace(" CONCURRENTLY", "")) for each in migration.statements)
    facts = {"version": str(last), **lasting_facts(), **facts_of(order)}
    # Drawn by the database: one script may make the tables of many, and each is to be told from the others.
    values = [f"('store_id', {sql.word('new_id')})", *(f"('{name}', '{value}')" for name, value in facts.items())]
    yield Step(f"INSERT INTO {_facts_table(names)} (name, value) VALUES\n  " + ",\n  ".join(values))


def _up(sql: Statements, names: TableNames, first: int, last: int) -> Iterator[Step]:
    for migration in sql.migrations()[first:last]:
        yield from (Step(each, migration.is_online) for each in migration.statements)
    yield _told(names, first, last)


def _down(sql: Statements, names: TableNames, first: int, last: int) -> Iterator[Step]:
    for migration in sql.downgrades()[last:first][::-1]:
        yield from (Step(each) for each in migration.statements)
    if last:
        yield _told(names, first, last)


def _told(names: TableNames, before: int, now: int) -> Step:
    """Only where the version is the one that the script is for."""
    table = _facts_table(names)
    return Step(f"UPDATE {table} SET value = '{now}' WHERE name = 'version' AND value = '{before}'")  # noqa: S608


def _facts_table(names: TableNames) -> str:
    return names.qualified(names.side("schema"))


def _refuse_unknown(first: int, last: int, newest: int) -> None:
    for name, version in (("from_version", first), ("to_version", last)):
        if not 0 <= version <= newest:
            raise InvalidOption(
                f"{name} is {version!r}, and this release knows the versions 0 (no tables) to {newest}",
                fix=f"use one of them, or a release that knows {version!r}",
            )
