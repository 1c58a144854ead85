"""What the errors of SQL Server and of its ODBC driver mean."""

from __future__ import annotations

import re
from typing import Any, Final

from aftercommit.stores.sql.execution import Fault

#: The server's own numbers. Where one is known it says more than the SQLSTATE, which many of them share.
_BY_NUMBER: Final[dict[int, Fault]] = {
    number: fault
    for fault, numbers in {
        # duplicate, check, NULL, too long, out of range, not convertible
        Fault.ROW: (2601, 2627, 547, 515, 8152, 2628, 8115, 220, 245, 241, 242, 517, 8114, 295, 9803),
        # deadlock, update conflicts of snapshots
        Fault.CONFLICT: (1205, 3960, 3961),
        # lock timeout, no locks left, our own wait for the schema lock, Azure under load
        Fault.BUSY: (1222, 1204, 51222, 40501, 10928, 10929),
        Fault.MISSING_TABLE: (208,),
        # no right to the object, to create, to the server's state; no access to the database; schema unknown
        Fault.FORBIDDEN: (229, 230, 262, 297, 300, 916, 2760, 15247),
        # read-only database, recovery, secondary replicas
        Fault.READ_ONLY: (3906, 3908, 976, 978),
        # login refused, database closed or moving, shutdown, killed session
        Fault.UNREACHABLE: (4060, 18452, 18456, 40613, 40197, 924, 927, 945, 6005, 596, 233, 10053, 10054, 10060),
    }.items()
    for number in numbers
}

#: By the first characters of the SQLSTATE.
_BY_STATE: Final[dict[str, Fault]] = {
    "22": Fault.ROW,
    "23": Fault.ROW,
    "40001": Fault.CONFLICT,
    "42S02": Fault.MISSING_TABLE,
    "08": Fault.UNREACHABLE,
    "28": Fault.UNREACHABLE,
    "HYT": Fault.UNREACHABLE,
    "01002": Fault.UNREACHABLE,
}

#: The driver ends the first message by the number and its own function. Behind it come messages without either, and
#: before it may stand a value of the user that looks the same, so the last one counts.
_NUMBER: Final = re.compile(r"\((\d{1,9})\) \(SQL\w+\)")


def fault_of(error: Exception, driver: Any) -> Fault:
    """Reads the errors of this driver module."""
    if isinstance(error, driver.Error):
        return _BY_NUMBER.get(number_of(error)) or _by_state(state_of(error))
    # The driver itself refuses: a number of more than 64 bits, half of a surrogate pair.
    return Fault.ROW if isinstance(error, OverflowError | UnicodeError) else Fault.OTHER


def number_of(error: Exception) -> int:
    """The server's number of an error; 0 when it is the driver's own."""
    found = _NUMBER.findall(str(error.args[1])) if len(error.args) > 1 else []
    return int(found[-1]) if found else 0


def state_of(error: Exception) -> str:
    return str(error.args[0]) if len(error.args) > 1 else ""


def _by_state(state: str) -> Fault:
    return next((fault for start, fault in _BY_STATE.items() if state.startswith(start)), Fault.OTHER)
