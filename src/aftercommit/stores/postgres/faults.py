"""psycopg's errors in our words."""

from __future__ import annotations

import psycopg
from psycopg_pool import PoolTimeout

from aftercommit.errors import OutboxError, StoreUnavailable
from aftercommit.ports import Fault
from aftercommit.stores.postgres.dialect import fault_of_state


def fault_of(error: Exception) -> Fault:
    if isinstance(error, OutboxError):
        return Fault.UNREACHABLE if isinstance(error, StoreUnavailable) else Fault.OTHER
    if isinstance(error, psycopg.Error) and (fault := fault_of_state(error.sqlstate)) is not None:
        return fault
    if isinstance(error, PoolTimeout):
        return Fault.BUSY
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | OSError):
        return Fault.UNREACHABLE
    if isinstance(error, psycopg.DataError | UnicodeError):  # found by the driver, before the server saw it
        return Fault.ROW
    return Fault.OTHER
