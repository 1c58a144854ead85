"""Where psycopg's connections come from: a pool of the outbox's own, or the user's."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolTimeout

from aftercommit.errors import StoreBusy
from aftercommit.stores.postgres.dialect import WHO_SERVES, none_free, of_the_parent
from aftercommit.stores.sql.connections import LARGEST, PATIENCE, abandoned


def settings(*, is_direct: bool) -> dict[str, Any]:
    """Behind a pooler nothing is prepared: another session would not know it. Else an INSERT gains half its time."""
    return {"autocommit": True, "prepare_threshold": 2 if is_direct else None}


class OwnPool:
    """Opened by its first use, closed with the outbox."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._pool: ConnectionPool[Any] | None = None
        self._opening = threading.Lock()

    def take(self) -> psycopg.Connection[Any]:
        try:
            return taken(self._pool or self._opened())
        except StoreBusy:
            self._is_direct()  # none is free, or none can be opened
            raise

    def _opened(self) -> ConnectionPool[Any]:
        with self._opening:
            self._pool = self._pool or self._new()
            return self._pool

    def _new(self) -> ConnectionPool[Any]:
        is_direct = self._is_direct()
        return ConnectionPool(
            self._conninfo,
            min_size=0,
            max_size=LARGEST,
            timeout=PATIENCE,
            kwargs=settings(is_direct=is_direct),
            open=True,
            name=f"aftercommit-{os.getpid()}",
        )

    def _is_direct(self) -> bool:
        """A pool would try for a long while and then say only that it took too long; a connection says why."""
        with psycopg.connect(self._conninfo, **settings(is_direct=False)) as connection:
            served_by = connection.execute(WHO_SERVES).fetchone()
            return bool(served_by == (connection.info.backend_pid,))

    def give(self, connection: psycopg.Connection[Any]) -> None:
        if self._pool is None or connection._pool is not self._pool:
            connection.close()  # of an earlier life
        else:
            self._pool.putconn(connection)

    def apart(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._conninfo, **settings(is_direct=False))

    def check(self) -> None:
        if self._pool is not None:
            self._pool.check()

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def abandon(self) -> None:
        abandoned.append(self._pool)
        self._pool = None
        self._opening = threading.Lock()  # a thread of the parent may hold the old one


def taken(pool: ConnectionPool[Any]) -> psycopg.Connection[Any]:
    try:
        connection: psycopg.Connection[Any] = pool.getconn()
    except PoolTimeout as error:
        raise none_free(pool.timeout) from error
    return connection


class GivenPool:
    """The user's own pool. It is used and never closed."""

    def __init__(self, pool: ConnectionPool[Any]) -> None:
        self._pool = pool
        self._is_parents = False

    def take(self) -> psycopg.Connection[Any]:
        if self._is_parents:
            raise of_the_parent()
        return taken(self._pool)

    def give(self, connection: psycopg.Connection[Any]) -> None:
        self._pool.putconn(connection)

    def apart(self) -> psycopg.Connection[Any]:
        """As the pool opens one, but not out of it: it may be small."""
        if self._is_parents:
            raise of_the_parent()
        pool: Any = self._pool  # whose parameters may be functions, from psycopg_pool 3.3 on
        conninfo = pool.conninfo() if callable(pool.conninfo) else pool.conninfo
        kwargs = pool.kwargs() if callable(pool.kwargs) else pool.kwargs
        connection: psycopg.Connection[Any] = pool.connection_class.connect(conninfo, **(kwargs or {}))
        return connection

    def check(self) -> None:
        self._pool.check()

    def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._is_parents = True


class Opened:
    """Connections that the user's own function opens; idle ones are kept for the next."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._idle: list[psycopg.Connection[Any]] = []
        self._is_closed = False

    def take(self) -> psycopg.Connection[Any]:
        self._is_closed = False
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def give(self, connection: psycopg.Connection[Any]) -> None:
        is_clean = not connection.closed and connection.pgconn.transaction_status == TransactionStatus.IDLE
        if is_clean and not self._is_closed and len(self._idle) < LARGEST:
            self._idle.append(connection)
        else:
            connection.close()

    def apart(self) -> psycopg.Connection[Any]:
        return self._connect()

    def check(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def close(self) -> None:
        self._is_closed = True
        self.check()

    def abandon(self) -> None:
        abandoned.extend(self._idle)
        self._idle = []
