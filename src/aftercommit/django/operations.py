"""What migrations do: make the tables exactly as `create_schema()` makes them, and drop them again."""

from __future__ import annotations

from typing import Any

from django.db import connections, router
from django.db.migrations.operations.base import Operation

from aftercommit.django.conf import options_of
from aftercommit.django.databases import place_of, vendor_of
from aftercommit.django.store import BlockExecutor, DjangoStore
from aftercommit.errors import UnknownStore
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.store import SqlStore


class OutboxTables(Operation):
    """Bring the tables of a database to this release's version. Again is fine. As SQL it is the steps of the schema
    from `first` to `last`, so that what is run by hand comes in parts."""

    reduces_to_sql = True
    reversible = True

    def __init__(self, first: int = 1, last: int | None = None) -> None:
        self.first = first
        self.last = last

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The model is declared beside it."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if not _is_wanted(alias, app_label):
            return
        if schema_editor.collect_sql:  # sqlmigrate
            for statement in _store_on(alias).schema_sql(self.first - 1, self.last).split(";\n"):
                if statement.strip():
                    schema_editor.execute(statement.strip(), params=None)
        else:
            run(_upgraded(alias))

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if self.first == 1 and _is_wanted(alias, app_label):  # releases before this one work with what is new in it
            names = _store_on(alias).names
            for name in names.all:
                schema_editor.execute(f"DROP TABLE IF EXISTS {names.qualified(name)}", params=None)

    def describe(self) -> str:
        return "Create the tables of the outbox" if self.first == 1 else "Bring the tables of the outbox up to date"


async def _upgraded(alias: str) -> None:
    if vendor_of(alias).migrates_beside and not connections[alias].in_atomic_block:
        # An index that is built while others write cannot be built in a transaction, and wants connections beside it.
        store: SqlStore = DjangoStore(alias, target=options_of(alias).get("target"), **_kept(alias))
    else:
        store = _store_on(alias)
    try:
        await store.create_schema()
    finally:
        await store.close()


def _store_on(alias: str) -> SqlStore:
    """A store all of whose statements run on Django's connection."""
    vendor = vendor_of(alias)
    return SqlStore(BlockExecutor(alias, vendor), vendor.dialect, where=place_of(alias), **_kept(alias))


def _is_wanted(alias: str, app_label: str) -> bool:
    """As a router says; a database that the outbox does not know is let be."""
    try:
        vendor_of(alias)
    except UnknownStore:
        return False
    return bool(router.allow_migrate(alias, app_label, model_name="event"))


def _kept(alias: str) -> dict[str, Any]:
    """The options that are kept in the tables, or are their names."""
    wanted = ("table", "schema", "ordered", "on_dead")
    return {name: value for name, value in options_of(alias).items() if name in wanted}
