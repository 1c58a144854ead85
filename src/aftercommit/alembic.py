"""For Alembic: the tables of an outbox, made by the very script that the outbox itself would run, and by no other."""

from __future__ import annotations

from typing import Any

from aftercommit.stores.scripts import schema_sql
from aftercommit.stores.sql.statements import TableNames
from aftercommit.transactions.sqlalchemy_schema import ATTACHED


def upgrade(
    op: Any,
    *,
    table: str = "outbox_event",
    schema: str | None = None,
    ordered: bool = False,
    on_dead: str = "block",
) -> None:
    """Make the tables. `op` is Alembic's; it works offline (`--sql`) as well."""
    script = schema_sql(op.get_context().dialect.name, table=table, schema=schema, ordered=ordered, on_dead=on_dead)
    for statement in script.split(";\n\n"):
        op.execute(statement.strip(";\n"))


def downgrade(op: Any, *, table: str = "outbox_event", schema: str | None = None) -> None:
    """Drop them, with every event that is in them."""
    for name in TableNames(table, schema).all:
        op.drop_table(name, schema=schema)


def include_object(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001
    """For `context.configure(include_object=…)`: autogenerate leaves the tables alone that outbox.attach() describes.
    What it would make of them lacks what the outbox looks for."""
    return kind != "table" or ATTACHED not in item.info
