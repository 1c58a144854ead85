"""What the migration does: make the table as `create_schema()` makes it, and drop it again."""

from __future__ import annotations

from typing import Any

from django.db import router
from django.db.migrations.operations.base import Operation

from aftercommit.django.databases import vendor_of
from aftercommit.django.inbox.inboxes import inbox_for
from aftercommit.errors import UnknownStore
from aftercommit.runtime.threads import run


class InboxTable(Operation):
    """The table of a database's inbox. Again is fine."""

    reduces_to_sql = True
    reversible = True

    def state_forwards(self, app_label: str, state: Any) -> None:
        """There is no model: its key has two columns."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if not _is_wanted(alias, app_label):
            return
        store = inbox_for(alias).store
        if schema_editor.collect_sql:  # sqlmigrate
            for statement in store.schema_sql().split(";\n"):
                if statement.strip():
                    schema_editor.execute(statement.strip(), params=None)
        else:
            run(store.create_schema())

    def database_backwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        alias = schema_editor.connection.alias
        if _is_wanted(alias, app_label):
            names = inbox_for(alias).store.names
            schema_editor.execute(f"DROP TABLE IF EXISTS {names.qualified(names.table)}", params=None)

    def describe(self) -> str:
        return "Create the table of the inbox"


def _is_wanted(alias: str, app_label: str) -> bool:
    """As a router says; a database that the inbox does not know is let be."""
    try:
        vendor_of(alias)
    except UnknownStore:
        return False
    return bool(router.allow_migrate(alias, app_label))
