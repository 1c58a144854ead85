"""Events with a unique key in a transaction of SQLAlchemy's: the store's own INSERT writes them, on the driver's
connection below, because no flush can leave a row out that another event keeps from being written."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection
from sqlalchemy.util import await_only
from sqlalchemy.util.concurrency import in_greenlet

from aftercommit.errors import UniqueKeyUnsupported
from aftercommit.events.claims import NewEvent, RowKey
from aftercommit.ports import AdoptedTx, Colour, EventStore
from aftercommit.runtime.threads import run
from aftercommit.transactions.sqlalchemy_fate import Fate


def insert_unique(
    store: EventStore, connection: Connection, fate: Fate, rows: Sequence[NewEvent]
) -> Collection[RowKey]:
    """Write them now; those that were refused."""
    driver = _driver_of(store, connection, fate)
    # SQLAlchemy begins the transaction of some drivers with the first statement that it runs itself.
    connection.exec_driver_sql("SELECT 1")
    work = store.insert_unique(driver, rows)
    refused = run(work).refused if store.colour is Colour.BLOCKING else await_only(work).refused
    fate.ran()
    return refused


def _driver_of(store: EventStore, connection: Connection, fate: Fate) -> AdoptedTx:
    """The driver's connection; an error where the store cannot write on it."""
    if fate.driver is not None and (store.colour is Colour.BLOCKING or in_greenlet()):
        return fate.driver
    raise UniqueKeyUnsupported(
        f"an event with a unique_key is written by a statement of the outbox's own, which {store!r} cannot run on a "
        f"connection of {connection.dialect.driver}",
        fix="write it in outbox.transaction(); or let the engine have the driver that the outbox's URL has by default",
    )
