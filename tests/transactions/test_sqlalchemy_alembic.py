"""Alembic: autogenerate leaves the tables alone once the outbox is attached, and a migration makes what it needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.util.exc import CommandError
from sqlalchemy import Column, Connection, Integer, MetaData, Table, inspect
from sqlalchemy.orm import Session

from aftercommit import InvalidOption, Outbox, SchemaMismatch, SchemaStatus, UnsupportedTransaction, schema_sql
from aftercommit.alembic import downgrade, include_object, process_revision_directives, upgrade
from aftercommit.stores.scripts import newest_version
from tests.conftest import execute_postgres, other_database
from tests.transactions.sqlalchemy_kit import Shop, plain

#: The schema of this release.
LAST = newest_version("sqlite")

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
            upgrade(operations(connection), to_version=LAST, table="migrated")
            assert differences(connection, metadata) == []
            connection.exec_driver_sql("ALTER TABLE migrated ADD COLUMN extra INTEGER")
            assert len(differences(connection, metadata)) == 1
            assert differences(connection, metadata, include_object=include_object) == []
            downgrade(operations(connection), from_version=LAST, table="migrated")
            assert not TABLES & set(inspect(connection).get_table_names())

        await shop.on_connection(compare)

    shop.run(scenario)


def copied(metadata: MetaData) -> MetaData:
    """As a revision has it that autogenerate wrote: the same tables, of which the outbox knows nothing."""
    copy = MetaData()
    for table in metadata.tables.values():
        table.to_metadata(copy)
    return copy


@pytest.fixture
def by_itself(shop: Shop) -> Any:
    """An outbox on tables that SQLAlchemy made from their description alone."""
    outbox, metadata = shop.outbox(table="migrated", create_schema=False), MetaData()
    plain(outbox).attach(metadata)
    return outbox, copied(metadata)


def test_tables_that_something_else_has_made_are_named_with_what_they_lack(shop: Shop, by_itself: Any) -> None:
    """Autogenerate alone, or a copy of the metadata. What is whole but for its facts is told them; what is not, not."""
    outbox, copy = by_itself

    async def scenario() -> None:
        await shop.on_connection(copy.create_all)
        try:
            with pytest.raises(SchemaMismatch) as caught:
                await outbox.start()
            status = await outbox.schema_status()
            assert str(status.problem) == str(caught.value)
            assert {"fact version", "fact store_id"} <= set(status.missing)
            if shop.world.database == "postgres":
                assert f"all of version {LAST} is there" in caught.value.message
                await outbox.create_schema()
                await outbox.start()
                await outbox.close()
            else:
                flaw = {
                    "sqlite": "column migrated.position, which is not AUTOINCREMENT",
                    "mariadb": "column migrated.event_id, which compares by",
                }[shop.world.database]
                assert flaw in caught.value.message
                assert "DROP TABLE" in caught.value.fix
                assert "aftercommit.alembic" in caught.value.fix
                with pytest.raises(SchemaMismatch, match="has not made it"):
                    await outbox.create_schema()
                assert str((await outbox.schema_status()).problem) == str(caught.value)
        finally:
            await shop.on_connection(copy.drop_all)

    shop.run(scenario)


def test_create_all_makes_what_the_outbox_would_make(shop: Shop) -> None:
    async def scenario() -> None:
        outbox, metadata = shop.outbox(table="migrated", create_schema=False), MetaData()
        plain(outbox).attach(metadata)
        await shop.on_connection(metadata.create_all)
        await shop.on_connection(metadata.create_all)
        status = await outbox.schema_status()
        assert (status.version, status.missing, status.fits) == (LAST, (), True)
        await shop.on_connection(metadata.drop_all)
        assert (await outbox.schema_status()).version == 0

    shop.run(scenario)


def test_an_outbox_works_on_what_a_migration_made(shop: Shop) -> None:
    async def scenario() -> None:
        outbox = shop.outbox(table="migrated", create_schema=False)
        await shop.on_connection(lambda connection: upgrade(operations(connection), to_version=LAST, table="migrated"))
        await outbox.start()

        def work(session: Session) -> None:
            plain(outbox).write("T", '"1"', tx=session)
            session.commit()

        await shop.in_session(work)
        await shop.seen.reach(1)
        await outbox.close()
        await shop.on_connection(
            lambda connection: downgrade(operations(connection), from_version=LAST, table="migrated")
        )

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
    upgrade(Operations(context), to_version=1, schema="sales")
    upgrade(Operations(context), from_version=1, to_version=LAST, schema="sales")
    downgrade(Operations(context), from_version=LAST, schema="sales")
    assert 'CREATE TABLE "sales"."outbox_event"' in text.getvalue()
    assert "INSERT INTO" in text.getvalue()
    assert "COMMIT;\n\nCREATE INDEX CONCURRENTLY" in text.getvalue(), "outside of transactions"
    assert 'DROP TABLE IF EXISTS "sales"."outbox_event"' in text.getvalue()


def test_a_revision_says_its_numbers() -> None:
    """Without them it would mean something else with every release."""
    op = Operations(MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True}))
    with pytest.raises(InvalidOption, match="to which version") as caught:
        upgrade(op)
    assert f"to_version={LAST}" in caught.value.fix
    with pytest.raises(InvalidOption, match="from which version"):
        downgrade(op)
    with pytest.raises(InvalidOption, match=f"0 \\(no tables\\) to {LAST}"):
        upgrade(op, to_version=LAST + 1)
    for wrong in (
        lambda: upgrade(op, from_version=2, to_version=1),
        lambda: downgrade(op, from_version=1, to_version=1),
    ):
        with pytest.raises(InvalidOption, match="no way"):
            wrong()


# ---------------------------------------------------------------- autogenerate, as the command runs it

ENV = """
import sqlalchemy as sa
from alembic import context
from aftercommit import Outbox, alembic as outbox_tables

url = context.config.get_main_option("sqlalchemy.url")
outbox = Outbox(url.replace("+psycopg", ""), table="migrated", ordered=True, create_schema=False)
metadata = sa.MetaData()
sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
outbox.attach(metadata)
engine = sa.create_engine(url)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, **context.config.attributes["hooks"])
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
outbox.close()
"""

MAKO = (
    "${imports if imports else ''}\nimport sqlalchemy as sa\nfrom alembic import op\nrevision = ${repr(up_revision)}\n"
    "down_revision = ${repr(down_revision)}\ndef upgrade():\n    ${upgrades}\ndef downgrade():\n    ${downgrades}\n"
)


@pytest.fixture
def empty_postgres_url(postgres_url: str) -> Iterator[str]:
    """What other tests have left in the worker's own database would be part of the comparison."""
    name = f"aftercommit_{uuid4().hex[:12]}"
    execute_postgres(postgres_url, f"CREATE DATABASE {name}")
    yield other_database(postgres_url, name)
    execute_postgres(postgres_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
@pytest.mark.parametrize("hooks", ["both", "one"])
@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_autogenerate_on_an_empty_database_makes_what_works(
    database: str, hooks: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """`alembic revision --autogenerate`, `upgrade head`, start; and nothing is left to do, and all of it goes again."""
    url = f"sqlite:///{tmp_path}/app.db" if database == "sqlite" else request.getfixturevalue("empty_postgres_url")
    config = configured(tmp_path, url, hooks)
    command.revision(config, autogenerate=True, rev_id="first")
    (written,) = (tmp_path / "versions").glob("first*.py")
    text = written.read_text()
    assert f"aftercommit.alembic.upgrade(op, to_version={LAST}, table='migrated', ordered=True)" in text
    assert f"aftercommit.alembic.downgrade(op, from_version={LAST}, table='migrated')" in text
    assert text.count("create_table") == 1, "the program's own"
    command.upgrade(config, "head")
    with Outbox(url, table="migrated", ordered=True, create_schema=False) as outbox:
        assert outbox.schema_status() == SchemaStatus(LAST, LAST)
    command.check(config)
    command.downgrade(config, "base")
    with closing(Outbox(url, table="migrated", ordered=True, create_schema=False)) as outbox:
        assert outbox.schema_status().version == 0


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection of expression-based index")
def test_autogenerate_goes_on_from_an_older_version(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    script = schema_sql("sqlite", table="migrated", ordered=True, to_version=LAST - 1)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        connection.executescript(f"CREATE TABLE orders (id INTEGER NOT NULL PRIMARY KEY); {script}")
    config = configured(tmp_path, url, "both")
    with pytest.raises(CommandError, match="upgrade_outbox"):
        command.check(config)
    command.revision(config, autogenerate=True, rev_id="next")
    command.upgrade(config, "head")
    with closing(Outbox(url, table="migrated", ordered=True, create_schema=False)) as outbox:
        assert outbox.schema_status().fits
        command.downgrade(config, "base")
        assert outbox.schema_status().version == LAST - 1


def configured(folder: Path, url: str, hooks: str) -> Config:
    (folder / "versions").mkdir()
    (folder / "env.py").write_text(ENV)
    (folder / "script.py.mako").write_text(MAKO)
    config = Config(stdout=StringIO(), output_buffer=StringIO())
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "os")
    config.set_main_option("sqlalchemy.url", url.replace("postgresql:", "postgresql+psycopg:", 1).replace("%", "%%"))
    config.attributes["hooks"] = {"process_revision_directives": process_revision_directives}
    if hooks == "both":
        config.attributes["hooks"]["include_object"] = include_object
    return config


def test_a_store_that_sqlalchemy_cannot_describe_says_so(tmp_path: Any) -> None:
    from aftercommit.transactions.sqlalchemy_schema import attach

    class Store:
        sql_table = None

    with pytest.raises(UnsupportedTransaction, match="include_name"):
        attach(Store(), MetaData())
