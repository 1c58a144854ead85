"""SQLAlchemy sessions on SQL Server: its own classes over the stand-in for pyodbc, and a parser for what they say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session
from sqlglot import exp, parse_one

from aftercommit import EventEnvelope, NotInTransaction, Outbox
from aftercommit.events.columns import WRITTEN
from tests.stores.sqlserver_kit import Connection, Driver, Server


class Said(Connection):
    """Remembers the parameters, too, and ends transactions as the driver does that begins them by itself."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.sent: list[tuple[str, Any]] = []
        self.ended: list[str] = []

    def run(self, sql: str, parameters: Any) -> tuple[list[Any] | None, int]:
        self.sent.append((sql, parameters))
        if sql == "IF @@TRANCOUNT = 0 BEGIN TRANSACTION":  # which SQLAlchemy says before a savepoint
            self.depth = max(1, self.depth)
        return super().run(sql, parameters)

    def cursor(self) -> Any:
        made: Any = super().cursor()
        made.setinputsizes = lambda sizes: None
        made.executemany = lambda sql, rows: [made.execute(sql, row) for row in rows]
        return made

    def commit(self) -> None:
        self.ended.append("commit")

    def rollback(self) -> None:
        self.ended.append("rollback")
        super().rollback()

    @property
    def inserts(self) -> list[tuple[str, Any]]:
        return [(sql, parameters) for sql, parameters in self.sent if sql.startswith("INSERT INTO [outbox_event]")]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.Engine]:
    driver: Any = Driver(Server())
    driver.paramstyle, driver.version, driver.Cursor = "qmark", "5.3.0", object
    for name in (
        "NUMBER",
        "STRING",
        "DATETIME",
        "BINARY",
        "SQL_WVARCHAR",
        "SQL_WLONGVARCHAR",
        "SQL_SS_TIMESTAMPOFFSET",
    ):
        setattr(driver, name, name)
    driver.BinaryNull, driver.Binary, driver.SQL_TYPE_TIMESTAMP = None, bytes, "SQL_TYPE_TIMESTAMP"
    monkeypatch.setattr("aftercommit.stores.sqlserver.target._pyodbc", lambda: driver)

    def creator() -> Said:
        made = Said(driver.server)
        made.autocommit = False
        return made

    made = sa.create_engine(
        "mssql+pyodbc://db.example/shop?driver=ODBC", creator=creator, module=driver, _initialize=False
    )
    yield made
    made.dispose()


@pytest.fixture
def outbox(engine: sa.Engine) -> Outbox:
    """Opened: there is no server that could tell of its tables."""
    made = Outbox(engine)
    made._store._schema.is_ready = True  # type: ignore[attr-defined]
    return made


def raw_of(session: Session) -> Said:
    raw: Said = session.connection().connection.driver_connection  # type: ignore[assignment]
    return raw


def test_an_event_is_part_of_the_sessions_transaction(engine: sa.Engine, outbox: Outbox) -> None:
    with Session(engine) as session:
        outbox.write("OrderPlaced", {"id": 7}, tx=session, key="order-7")
        raw = raw_of(session)
        assert raw.inserts == [], "the unit of work flushes it"
        session.flush()
        assert (len(raw.inserts), raw.ended) == (1, [])
        session.commit()
        assert raw.ended[:1] == ["commit"]
    sql, values = raw.inserts[0]
    assert sql.count("?") == len(values)
    assert '{"id":7}' in values
    assert "order-7" in values


@pytest.mark.parametrize("way", ["session", "connection"])
def test_many_are_a_statement_each_in_their_order(engine: sa.Engine, outbox: Outbox, way: str) -> None:
    """Of the rows of one statement nobody promises that their positions are in its order."""
    with Session(engine) as session:
        tx = session if way == "session" else session.connection()
        outbox.write_all([EventEnvelope.of_json("A", text) for text in ("1", "2", "3")], tx=tx)
        raw = raw_of(session)
        session.flush()
        payload = [column.name for column in WRITTEN].index("payload")
        assert [values[payload] for _, values in raw.inserts] == ["1", "2", "3"]
        session.rollback()
    assert "commit" not in raw.ended


def test_a_connection_of_the_engine_inserts_at_once(engine: sa.Engine, outbox: Outbox) -> None:
    with engine.begin() as connection:
        outbox.write("A", b"\x00\xff", tx=connection)
        raw: Any = connection.connection.driver_connection
        assert len(raw.inserts) == 1
        assert b"\x00\xff" in raw.inserts[0][1]


def test_autocommit_is_no_transaction(engine: sa.Engine, outbox: Outbox) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session, pytest.raises(NotInTransaction):
        outbox.write("A", {}, tx=session)


def test_what_it_says_is_an_insert_of_sql_server_with_times_of_the_database(engine: sa.Engine, outbox: Outbox) -> None:
    with Session(engine) as session:
        outbox.write("A", {}, tx=session, deliver_after="3d")
        session.flush()
        sql, values = raw_of(session).inserts[0]
    insert = parse_one(sql, dialect="tsql")
    assert isinstance(insert, exp.Insert)
    assert [column.name for column in insert.this.expressions] == [column.name for column in WRITTEN]
    written = dict(zip([column.name for column in WRITTEN], insert.expression.expressions[0].expressions, strict=True))
    for name in ("created_at", "available_at", "locked_at", "lease_until"):
        said = written[name].sql(dialect="tsql").upper()
        assert said.count("DATEADD(") == 3, "days, seconds and microseconds: each fits into four bytes"
        assert "SYSUTCDATETIME()" in said
    assert 3 * 86_400_000_000 in values
