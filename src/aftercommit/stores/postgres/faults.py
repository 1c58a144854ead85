"""psycopg's errors in our words."""

from __future__ import annotations

from typing import Any

import psycopg

from aftercommit.errors import OutboxError
from aftercommit.stores.postgres.dialect import fault_of_ours, fault_of_state
from aftercommit.stores.sql.execution import Fault


def fault_of(error: Exception) -> Fault:
    if isinstance(error, OutboxError):
        return fault_of_ours(error)
    error = getattr(error, "orig", error)  # SQLAlchemy wraps what happens while it connects
    if isinstance(error, psycopg.Error) and (fault := fault_of_state(error.sqlstate)) is not None:
        return fault
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return Fault.UNREACHABLE
    if isinstance(error, psycopg.DataError | UnicodeError):  # found by the driver, before the server saw it
        return Fault.ROW
    return Fault.OTHER


def has_ended(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server ended an idle session. It has said so, and only has to be heard: no round trip."""
    try:
        for _ in range(2):  # the last words, and the end of the stream behind them
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False
