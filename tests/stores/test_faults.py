"""What a driver's error means to the user, and names as they get into statements."""

from __future__ import annotations

from pathlib import Path

import pytest

from aftercommit.errors import (
    InvalidOption,
    OutboxError,
    SchemaMissing,
    StoreBusy,
    StoreForbidden,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from aftercommit.stores.sql.execution import Fault, explained
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT
from tests.stores.kit import store_at

NAMES = TableNames("ob_x", "app")
ERROR = RuntimeError("permission denied for postgresql://ann:hunter2@db/app")


@pytest.mark.parametrize(
    ("fault", "kind", "words", "fix"),
    [
        (Fault.MISSING_TABLE, SchemaMissing, "ob_x", "create_schema()"),
        (Fault.FORBIDDEN, StoreForbidden, "db:5432/app forbids", "GRANT SELECT, INSERT, UPDATE, DELETE ON ob_x"),
        (Fault.READ_ONLY, StoreReadOnly, "db:5432/app takes no writes", "primary"),
        (Fault.UNREACHABLE, StoreUnavailable, "db:5432/app cannot be reached", "the server runs"),
        (Fault.FULL, StoreFull, "db:5432/app has no room left", "make room"),
        (Fault.BUSY, StoreBusy, "db:5432/app was busy", "keep transactions short"),
    ],
)
def test_what_a_user_can_mend_is_said_in_our_words_with_the_fix(
    fault: Fault, kind: type[OutboxError], words: str, fix: str
) -> None:
    ours = explained(ERROR, fault, NAMES, "db:5432/app")
    assert type(ours) is kind
    assert words in ours.message
    assert fix in ours.fix
    assert "hunter2" not in str(ours)


@pytest.mark.parametrize("fault", [Fault.FORBIDDEN, Fault.READ_ONLY, Fault.UNREACHABLE, Fault.BUSY])
def test_the_drivers_own_words_are_kept_without_their_secrets(fault: Fault) -> None:
    ours = explained(ERROR, fault, NAMES, "db:5432/app")
    assert ours is not None
    assert "permission denied" in ours.message


def test_the_rights_on_the_side_table_are_named() -> None:
    ours = explained(ERROR, Fault.FORBIDDEN, NAMES, "db")
    assert ours is not None
    assert "ob_x_schema" in ours.fix


@pytest.mark.parametrize("fault", [Fault.ROW, Fault.CONFLICT, Fault.OTHER])
def test_where_the_drivers_word_is_the_best_it_stays(fault: Fault) -> None:
    assert explained(ERROR, fault, NAMES, "db") is None


def test_every_fault_has_an_answer() -> None:
    """A new member must be thought about here."""
    for fault in Fault:
        answer = explained(ERROR, fault, NAMES, "db")
        assert answer is None or answer.fix


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("names", "table", "schema_table"),
    [
        (TableNames("outbox_event"), '"outbox_event"', '"outbox_schema"'),
        (TableNames("ob_x"), '"ob_x"', '"ob_x_schema"'),
        (TableNames("outbox_event", "app"), '"app"."outbox_event"', '"app"."outbox_schema"'),
        (TableNames("Order", "User"), '"User"."Order"', '"User"."Order_schema"'),
        (TableNames("select", "from", ("`", "`")), "`from`.`select`", "`from`.`select_schema`"),
        (TableNames("select", "from", ("[", "]")), "[from].[select]", "[from].[select_schema]"),
    ],
    ids=str,
)
def test_names_are_quoted_and_stand_behind_their_schema(names: TableNames, table: str, schema_table: str) -> None:
    assert names.qualified(names.table) == table
    assert names.qualified(names.side("schema")) == schema_table


def test_statements_and_migrations_speak_of_the_table_in_its_schema() -> None:
    """An index is in the schema of its table, and is named without it."""
    made = Statements(DIALECT, TableNames("order", "user"))
    assert made["surviving"].sql.splitlines()[1] == 'FROM "user"."order"'
    assert made["settings"].sql == 'SELECT name, value FROM "user"."order_schema"'
    script = "\n".join(made.migrations()[0].statements)
    assert 'CREATE TABLE "user"."order" (' in script
    assert 'CREATE INDEX "order_pending" ON "user"."order" (' in script
    assert '"order"."' not in script


@pytest.mark.parametrize("name", ["", "a b", 'a"b', "a'b", "a`b", "a]b", "a.b", "a;b", "1a", "a\x00", "é", "x" * 49])
@pytest.mark.parametrize("option", ["table", "schema"])
def test_a_name_with_anything_but_letters_digits_and_underscores_is_refused(option: str, name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{option} is"):
        TableNames(**{"table": "outbox_event", option: name})


def test_sqlite_has_no_schemas(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="SQLite has no schemas"):
        store_at(tmp_path / "x.db", schema="app")
