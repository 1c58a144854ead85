"""What the server must be, and how a session on it is set up."""

from __future__ import annotations

import re
from typing import Final

from aftercommit.errors import SchemaMismatch

#: SKIP LOCKED, JSON_TABLE, and a collation that compares bytes.
_OLDEST: Final = {"MySQL": (8, 0, 17), "MariaDB": (10, 6, 0)}

#: How long a statement waits for a row lock before it gives up, in seconds. The server's default is 50.
LOCK_WAIT: Final = 5

#: After how many seconds the server ends one of our sessions that stands still inside a transaction: it would keep
#: its rows locked, and others would pass over them long after its leases have run out. MySQL knows such a limit only
#: for all idle sessions, so there it is longer.
STANDSTILL: Final = 10
IDLE: Final = 60

# MariaDB before 11 puts 5.5.5- before its own number.
_MARIADB: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)-MariaDB", re.IGNORECASE)
_MYSQL: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_version(text: str) -> None:
    """`text` is what the server says of itself. One that names no number is let be."""
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
    limits = f"/*M! , idle_transaction_timeout = {STANDSTILL} */ /*!80000 , wait_timeout = {IDLE} */"
    return [*settings, f"SET SESSION sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION' {limits}"]
