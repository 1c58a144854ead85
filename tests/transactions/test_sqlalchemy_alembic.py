"""Alembic: autogenerate leaves the tables alone once the outbox is attached, and a migration makes what it needs."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect
from sqlalchemy.orm import Session

from aftercommit import SchemaMismatch, UnsupportedTransaction
from aftercommit.alembic import downgrade, include_object, upgrade
from tests.transactions.sqlalchemy_kit import Shop, plain

alembic = pytest.importorskip("alembic")

from alembic.autogenerate import compare_metadata  # noqa: E402
from alembic.migration import MigrationContext  # noqa: E402
from alembic.operations import Operations  # noqa: E402

#: What is said of tables without the facts that the outbox keeps.
FOREIGN = r"migrated is there, but create_schema\(\) has not made it"

TABLES = {"migrated", *(f"migrated_{side}" for side in ("schema", "instance", "partition", "failure", "pause"))}


def differences(connection: Connection, metadata: MetaData, **more: Any) -> list[Any]:
    """What autogenerate would change in tables that the metadata has, or the database has of the same beginning."""
    names = {table.name for table in metadata.tables.values()}

    def is_ours(name: str | None, kind: str, _: Any) -> bool:
        return kind != "table" or name in names or str(name).startswith("migrated")

    options = {"include_name": is_ours, "compare_type": True, "compare_server_default": True, **more}
    return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


def operations(connection: Connection) -> Operations:
    return Operations(MigrationContext.configure(connection))


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_autogenerate_finds_nothing_to_change(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = plain(shop.outbox(table="migrated"))
        metadata = MetaData()
        table = outbox.attach(metadata)
        assert outbox.attach(metadata) is table
        assert set(metadata.tables) == TABLES

        def compare(connection: Connection) -> None:
            missing = {each[1].name for each in differences(connection, metadata) if each[0] == "add_table"}
            assert missing == TABLES
            assert differences(connection, metadata, include_object=include_object) == []
            upgrade(operations(connection), table="migrated")
            assert differences(connection, metadata) == []
            connection.exec_driver_sql("ALTER TABLE migrated ADD COLUMN extra INTEGER")
            assert len(differences(connection, metadata)) == 1
            assert differences(connection, metadata, include_object=include_object) == []
            downgrade(operations(connection), table="migrated")
            assert not inspect(connection).has_table("migrated")

        await shop.on_connection(compare)

    shop.run(scenario)


def test_tables_that_something_else_has_made_are_refused_by_name(shop: Shop) -> None:
    """Autogenerate without include_object, create_all(), or a table of another program."""

    async def scenario() -> None:
        outbox, metadata = shop.outbox(table="migrated", create_schema=False), MetaData()
        plain(outbox).attach(metadata)
        await shop.on_connection(metadata.create_all)
        try:
            with pytest.raises(SchemaMismatch, match=FOREIGN) as caught:
                await outbox.start()
            assert "aftercommit.alembic" in caught.value.fix
            if shop.world.database != "mariadb":  # there a creation that was cut off is gone on with
                with pytest.raises(SchemaMismatch, match=FOREIGN):
                    await outbox.create_schema()
        finally:
            await shop.on_connection(metadata.drop_all)

    shop.run(scenario)


def test_an_outbox_works_on_what_a_migration_made(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(table="migrated", create_schema=False)
        await shop.on_connection(lambda connection: upgrade(operations(connection), table="migrated"))
        await outbox.start()

        def work(session: Session) -> None:
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(1)
        await outbox.close()
        await shop.on_connection(lambda connection: downgrade(operations(connection), table="migrated"))

    shop.run(scenario)


def test_autogenerate_looks_at_other_tables() -> None:
    table = Table("orders", MetaData(), Column("id", Integer, primary_key=True))
    assert include_object(table, "orders", "table", False, None)
    assert include_object(table.c.id, "id", "column", False, None)


def test_a_migration_can_be_written_as_a_script() -> None:
    text = StringIO()
    context = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": text, "literal_binds": True}
    )
    upgrade(Operations(context), schema="sales")
    assert 'CREATE TABLE "sales"."outbox_event"' in text.getvalue()
    assert "INSERT INTO" in text.getvalue()


def test_a_store_that_sqlalchemy_cannot_describe_says_so(tmp_path: Any) -> None:
    from aftercommit.transactions.sqlalchemy_schema import attach

    class Store:
        sql_table = None

    with pytest.raises(UnsupportedTransaction, match="include_name"):
        attach(Store(), MetaData())
