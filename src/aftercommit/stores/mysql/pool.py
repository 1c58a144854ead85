"""Where connections come from, a pool of our own or the user's; what the server must be, and how a session is set."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from aftercommit.errors import InvalidOption, SchemaMismatch
from aftercommit.stores.mysql.executor import MysqlExecutor, MysqlLink
from aftercommit.stores.mysql.link import DriverLink
from aftercommit.stores.sql.connections import Pool
from aftercommit.stores.sql.engines import EnginePool

_FIX: Final = "keep transactions short, or raise pool_size in the URL"

#: SKIP LOCKED, JSON_TABLE, and a collation that compares bytes; for TiDB the collation alone.
_OLDEST: Final = {"MySQL": (8, 0, 17), "MariaDB": (10, 6, 0)}
_OLDEST_TIDB: Final = (7, 5, 0)

#: How long a statement waits for a row lock before it gives up, in seconds. The server's default is 50.
LOCK_WAIT: Final = 5

#: After how many seconds the server ends one of our sessions that stands still inside a transaction: it would keep
#: its rows locked, and others would pass over them long after its leases have run out. MySQL knows such a limit only
#: for all idle sessions; one that rested for longer is opened anew.
STANDSTILL: Final = 10

# MariaDB before 11 puts 5.5.5- before its own number.
_MARIADB: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)-MariaDB", re.IGNORECASE)
_MYSQL: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
# The MySQL that it takes after stands before it.
_TIDB: Final = re.compile(r"-TiDB-v(\d+)\.(\d+)\.(\d+)", re.IGNORECASE)


def over_connections(
    kind: type[DriverLink], connect: Callable[[], Awaitable[Any]], pool_size: int, *, product: str = "MySQL"
) -> MysqlExecutor:
    """Over connections that `connect` opens, for the store and for users apart. All that the user has asked for are
    kept."""

    def pool(*, is_users: bool) -> Pool[MysqlLink]:
        async def connected() -> DriverLink:
            return await _set_up(kind(await connect()), product, is_users=is_users)

        return Pool(
            lambda: MysqlLink(connected, kind.error),
            kind.turn,
            largest=pool_size,
            fix=_FIX,
            is_lost=lambda one: one.link is not None and one.link.is_lost,
        )

    return MysqlExecutor(kind, pool(is_users=False), pool(is_users=True))


async def _set_up(link: DriverLink, product: str, *, is_users: bool) -> DriverLink:
    try:
        check_version(link.raw.get_server_info(), product)
        if not link.is_autocommit:
            await link.run("SET AUTOCOMMIT = 1")
        for sql in session_settings(is_users=is_users):
            await link.run(sql)
    except BaseException:
        link.drop()
        raise
    return link


def is_tidb(text: str) -> bool:
    """By what the server says of itself."""
    return _TIDB.search(text) is not None


def check_version(text: str, product: str = "MySQL") -> None:
    """`text` is what the server says of itself. One that names no number is let be. What is said to TiDB is understood
    by the others too, and not the other way round."""
    if (tidb := _TIDB.search(text)) is not None:
        if product != "TiDB":
            raise SchemaMismatch(
                f"the server is TiDB ({text}), which lacks what is done with MySQL",
                fix='Outbox("tidb://…"), also where sessions of an engine for MySQL write',
            )
        if tuple(map(int, tidb.groups())) < _OLDEST_TIDB:
            needed = ".".join(map(str, _OLDEST_TIDB))
            raise SchemaMismatch(f"the server is {text}, aftercommit needs TiDB {needed}", fix="upgrade the server")
        return
    mariadb = _MARIADB.search(text)
    found = mariadb or _MYSQL.match(text)
    name = "MariaDB" if mariadb else "MySQL"
    if found is not None and tuple(map(int, found.groups())) < _OLDEST[name]:
        needed = " or ".join(f"{kind} {'.'.join(map(str, version))}" for kind, version in _OLDEST.items())
        raise SchemaMismatch(f"the server is {name} {text}, aftercommit needs {needed}", fix="upgrade the server")


def session_settings(*, is_users: bool) -> list[str]:
    """A user's statements run in the SQL mode that the server was given; our own in a strict one."""
    settings = ["SET NAMES utf8mb4", f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT}"]
    if is_users:
        return settings
    # MySQL warns of a strict mode without the words about noughts, and asyncmy writes each warning into the log.
    mode = "STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
    limits = f"/*M! , idle_transaction_timeout = {STANDSTILL} */ /*!80000 , wait_timeout = {STANDSTILL} */"
    return [*settings, f"SET SESSION sql_mode = '{mode}' {limits}"]


def over_engine(kind: type[DriverLink], engine: Any, *, product: str = "MySQL") -> MysqlExecutor:
    """Over the pool of a SQLAlchemy engine."""
    lent = EnginePool(engine, lambda lent: kind(lent.driver_connection), lambda link: not link.is_open)
    said = engine.get_execution_options().get("isolation_level")
    isolation = said and str(said).upper().replace("_", " ")  # SQLAlchemy takes either
    pool = GivenPool(lent, kind.error, None if isolation == "AUTOCOMMIT" else isolation, product)
    return MysqlExecutor(kind, pool, pool)


@dataclass(eq=False)
class GivenPool:
    """Connections of the user's own pool, in the user's settings. Nothing is set on them that outlives a loan."""

    _engine: EnginePool[DriverLink]
    _driver_error: type[Exception]
    #: What the engine would set for a transaction.
    _isolation: str | None
    _product: str

    async def take(self) -> MysqlLink:
        return MysqlLink(self._checked, self._driver_error, self._lose, self._isolation)

    async def _checked(self) -> DriverLink:
        link = await self._engine.take()
        if link.charset != "utf8mb4":
            await self._engine.give(link)
            raise InvalidOption(
                f"the connections that were given speak {link.charset}, in which not every event can be said",
                fix="open them with charset=utf8mb4",
            )
        if is_tidb(info := link.raw.get_server_info()):
            try:
                check_version(info, self._product)
            except SchemaMismatch:
                await self._engine.give(link)
                raise
        return link

    async def _lose(self, link: DriverLink) -> None:
        await self._engine.give(link)
        await self._engine.check()

    async def give(self, one: MysqlLink, /, *, is_sound: bool = True) -> None:
        """The engine looks for itself whether it is sound."""
        if one.link is not None:
            await self._engine.give(one.link)

    async def close(self) -> None:
        """It is the user's."""

    def abandon(self) -> None:
        self._engine.abandon()
