"""What migrations do: make the tables exactly as `create_schema()` makes them, and drop them again."""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from aftercommit.django.conf import options_of
from aftercommit.django.databases import vendor_of
from aftercommit.django.store import store_on
from aftercommit.errors import UnknownStore
from aftercommit.runtime.threads import run
from aftercommit.stores.identifiers import TableNames


class OutboxTables(Operation):
    """Bring the tables of a database to this release's version. Again is fine."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The model is declared beside it."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if not _is_wanted(alias, app_label):
            return
        store = store_on(alias, **_names_of(alias))
        if schema_editor.collect_sql:  # sqlmigrate
            for statement in store.schema_sql().split(";\n"):
                if statement.strip():
                    schema_editor.execute(statement.strip(), params=None)
        else:
            run(store.create_schema())

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if _is_wanted(alias, app_label):
            names = TableNames(**{"table": "outbox_event", **_names_of(alias)}, quotes=vendor_of(alias).dialect.quotes)
            for name in (names.table, names.side("schema")):
                schema_editor.execute(f"DROP TABLE IF EXISTS {names.qualified(name)}", params=None)

    def describe(self) -> str:
        return "Create the tables of the outbox"


def _is_wanted(alias: str, app_label: str) -> bool:
    """As a router says; a database that the outbox does not know is let be."""
    try:
        vendor_of(alias)
    except UnknownStore:
        return False
    return bool(router.allow_migrate(alias, app_label, model_name="event"))


def _names_of(alias: str) -> dict[str, Any]:
    return {name: value for name, value in options_of(alias).items() if name in ("table", "schema")}
