"""For Alembic: the tables of an outbox, made by the very script that the outbox itself would run, and by no other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import renderers
from alembic.operations import ops

from aftercommit.errors import InvalidOption
from aftercommit.events.order import Order
from aftercommit.stores.scripts import newest_version, schema_steps
from aftercommit.stores.sql.statements import TableNames
from aftercommit.stores.sql.steps import Step
from aftercommit.transactions.sqlalchemy_schema import ATTACHED


def upgrade(
    op: Any,
    *,
    from_version: int = 0,
    to_version: int | None = None,
    table: str = "outbox_event",
    schema: str | None = None,
    ordered: bool = False,
    on_dead: str = "block",
) -> None:
    """Bring the tables from one version to a later one; without `from_version` make them. `op` is Alembic's; it works
    offline (`--sql`) as well.

    `to_version` has to be said: a revision means the same for ever, whatever later releases add.
    """
    database = op.get_context().dialect.name
    if to_version is None:
        newest = newest_version(database)
        raise InvalidOption(
            "upgrade() does not say to which version, so the revision would mean something else with every release",
            fix=f"upgrade(op, to_version={newest}): that is the version of this release",
        )
    _refuse_wrong_way(from_version, to_version, "upgrade(op, from_version=…, to_version=…) with the higher one last")
    order = Order(ordered, on_dead)
    _run(
        op,
        schema_steps(
            database, table=table, schema=schema, order=order, from_version=from_version, to_version=to_version
        ),
    )


def downgrade(
    op: Any,
    *,
    from_version: int | None = None,
    to_version: int = 0,
    table: str = "outbox_event",
    schema: str | None = None,
) -> None:
    """Bring the tables from one version back to an earlier one; without `to_version` drop them, with every event that
    is in them."""
    database = op.get_context().dialect.name
    if from_version is None:
        raise InvalidOption(
            "downgrade() does not say from which version",
            fix="downgrade(op, from_version=…): the to_version of the upgrade() beside it",
        )
    _refuse_wrong_way(to_version, from_version, "downgrade(op, from_version=…, to_version=…) with the lower one last")
    order = Order(False)
    _run(
        op,
        schema_steps(
            database, table=table, schema=schema, order=order, from_version=from_version, to_version=to_version
        ),
    )


def _refuse_wrong_way(low: int, high: int, fix: str) -> None:
    if low >= high:
        raise InvalidOption(f"there is no way from version {low} up to {high}, or back", fix=fix)


def _run(op: Any, steps: Iterable[Step]) -> None:
    for step in steps:
        if step.is_online:
            # Alembic leaves its transaction for it: what is built beside writers can be built in none.
            with op.get_context().autocommit_block():
                op.execute(step.sql)
        else:
            op.execute(step.sql)


# ---------------------------------------------------------------- autogenerate


def include_object(item: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:  # noqa: ARG001
    """For `context.configure(include_object=…)`: autogenerate leaves the tables alone that outbox.attach() describes.
    What it would make of them lacks what the outbox looks for."""
    return kind != "table" or ATTACHED not in item.info


def process_revision_directives(context: Any, revision: Any, directives: list[Any]) -> None:  # noqa: ARG001
    """For `context.configure(process_revision_directives=…)`: autogenerate writes the `upgrade()` and `downgrade()`
    that lead the tables of outbox.attach() from what the database has to what this release needs."""
    for script in directives:
        for way in script.upgrade_ops_list:
            way.ops[:] = [each for each in way.ops if not _is_of_outbox(each, context.opts["target_metadata"])]
            for table in _event_tables(context.opts["target_metadata"]):
                step = _UpgradeOutbox.of(table, context)
                if step is not None:
                    way.ops.append(step)
                    script.imports.add("import aftercommit.alembic")
        for up, down in zip(script.upgrade_ops_list, script.downgrade_ops_list, strict=True):
            up.reverse_into(down)


class _UpgradeOutbox(ops.MigrateOperation):
    """The outbox's own step of a revision, either way."""

    def __init__(self, function: str, versions: tuple[int, int], names: dict[str, Any]) -> None:
        self.function = function
        self.versions = versions
        self.names = names

    @classmethod
    def of(cls, table: Any, context: Any) -> _UpgradeOutbox | None:
        """None where the database has what it needs."""
        needed, found = newest_version(context.dialect.name), _version_at(context.connection, table)
        names = {"table": table.name, "schema": table.schema, **table.info[ATTACHED]}
        return cls("upgrade", (found, needed), names) if found < needed else None

    def reverse(self) -> _UpgradeOutbox:
        names = {name: value for name, value in self.names.items() if name in ("table", "schema")}
        return _UpgradeOutbox("downgrade", self.versions[::-1], names)

    def to_diff_tuple(self) -> tuple[str, str, int, int]:
        """For `alembic check`."""
        return (f"{self.function}_outbox", self.names["table"], *self.versions)


@renderers.dispatch_for(_UpgradeOutbox)
def _render(context: Any, step: _UpgradeOutbox) -> str:  # noqa: ARG001
    """Without what is so by default."""
    defaults = {"from_version": 0, "to_version": 0, "table": "outbox_event", "schema": None}
    defaults |= {"ordered": False, "on_dead": "block"}
    given = {"from_version": step.versions[0], "to_version": step.versions[1], **step.names}
    words = "".join(f", {name}={value!r}" for name, value in given.items() if value != defaults[name])
    return f"aftercommit.alembic.{step.function}(op{words})"


def _event_tables(metadata: Any) -> list[Any]:
    """The tables of events that were attached; a program may have some, and more than one MetaData."""
    all_of_it = metadata if isinstance(metadata, Iterable) else [metadata]
    return [table for each in all_of_it for table in each.tables.values() if table.info.get(ATTACHED)]


def _is_of_outbox(step: Any, metadata: Any) -> bool:
    """Whether autogenerate wants to make or change one of its tables itself, without `include_object`."""
    names = {
        (table.schema, name) for table in _event_tables(metadata) for name in TableNames(table.name, table.schema).all
    }
    return (getattr(step, "schema", None), getattr(step, "table_name", None)) in names


def _version_at(connection: Any, table: Any) -> int:
    """What the database has of it."""
    name = TableNames(table.name, table.schema).side("schema")
    if not sa.inspect(connection).has_table(name, schema=table.schema):
        return 0
    facts = sa.table(name, sa.column("name"), sa.column("value"), schema=table.schema)
    return int(connection.scalar(sa.select(facts.c.value).where(facts.c.name == "version")) or 0)
