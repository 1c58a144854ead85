"""What the error codes of MySQL, MariaDB and their drivers mean."""

from __future__ import annotations

from typing import Final

from aftercommit.errors import OutboxError, PayloadTooLarge
from aftercommit.stores.sql.execution import Fault

_CODES: Final[dict[Fault, tuple[int, ...]]] = {
    # Null, duplicate, cut, out of range, no such text or time, a broken check, no JSON, a statement that is too long.
    Fault.ROW: (1048, 1062, 1153, 1264, 1265, 1292, 1300, 1366, 1406, 1411, 1441, 1690, 3140, 3141, 3819, 4025, 4038),
    # A deadlock, and a row that changed since the snapshot was taken (MariaDB's innodb_snapshot_isolation).
    # And TiDB's: another wrote first, the commit may be repeated, the table was changed meanwhile.
    Fault.CONFLICT: (1020, 1213, 8002, 8022, 8028, 9007),
    # A lock wait that was too long, a statement that took too long.
    Fault.BUSY: (1205, 1969, 3024, 3572),
    Fault.MISSING_TABLE: (1146,),
    Fault.FORBIDDEN: (1044, 1045, 1130, 1142, 1143, 1227, 1370, 1698),
    Fault.READ_ONLY: (1290, 1792, 1836),
    # No room on the disk, in the table.
    Fault.FULL: (1021, 1114),
    # No connection left, no such database, shut down, killed, timed out, broken in the middle.
    Fault.UNREACHABLE: (
        *(1040, 1203, 1226),
        *(1049, 1053, 1077, 1079, 1080, 1129, 1152, 1158, 1159, 1160, 1161, 1184, 1927, 3169, 4031),
        *(2002, 2003, 2005, 2006, 2013, 2014, 2026, 2027, 2055),
        *(8027, 9001, 9002, 9003, 9004, 9005),  # TiDB does not reach what lies behind it
    ),
}

_FAULTS: Final = {code: fault for fault, codes in _CODES.items() for code in codes}

#: Errors that the driver raises by itself; all others are the words of the server.
_OF_CLIENT: Final = range(2000, 3000)


def code_of(error: BaseException) -> int | None:
    """The number that a driver's error carries. Of a closed connection PyMySQL and asyncmy say 0."""
    code = error.args[0] if error.args else None
    return code if isinstance(code, int) else None


def fault_of(error: BaseException, driver_error: type[BaseException]) -> Fault:
    """`driver_error` is the root of the driver's own errors."""
    if isinstance(error, driver_error):
        code = code_of(error)
        return _FAULTS.get(code, Fault.OTHER) if code else _unnumbered(error, code)
    if isinstance(error, OutboxError):
        return Fault.ROW if isinstance(error, PayloadTooLarge) else Fault.OTHER
    if isinstance(error, UnicodeError):
        return Fault.ROW
    return Fault.UNREACHABLE if isinstance(error, ConnectionError) else Fault.OTHER


def _unnumbered(error: BaseException, code: int | None) -> Fault:
    """Drivers count wrong parameters as ProgrammingError; their other errors without a number are about the wire."""
    is_wire = code == 0 or type(error).__name__ in ("Error", "InterfaceError", "InternalError")
    return Fault.UNREACHABLE if is_wire else Fault.OTHER


def is_in_step(error: BaseException, driver_error: type[BaseException]) -> bool:
    """Whether the connection can be used after this error: the server said it, or it never got there."""
    return (
        isinstance(error, Exception)
        and code_of(error) not in _OF_CLIENT
        and fault_of(error, driver_error) is not Fault.UNREACHABLE
    )
