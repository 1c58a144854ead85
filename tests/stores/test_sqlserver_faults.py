"""What the errors of SQL Server mean. The texts are worded as the driver words them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.errors import InvalidOption
from aftercommit.stores.sql.execution import Fault
from aftercommit.stores.sqlserver.connection import fault_of, number_of
from tests.stores.sqlserver_kit import (
    Driver,
    Error,
    IntegrityError,
    OperationalError,
    ProgrammingError,
    Server,
    deadlock,
    duplicate,
    lost,
    refused,
)

DRIVER = Driver(Server())


@pytest.mark.parametrize(
    ("state", "number", "fault"),
    [
        ("23000", 2627, Fault.ROW),
        ("23000", 2601, Fault.ROW),
        ("22001", 2628, Fault.ROW),
        ("22001", 8152, Fault.ROW),
        ("22003", 8115, Fault.ROW),
        ("22018", 245, Fault.ROW),
        ("22008", 99999, Fault.ROW),
        ("40001", 1205, Fault.CONFLICT),
        ("42000", 3960, Fault.CONFLICT),
        ("HYT00", 1222, Fault.BUSY),
        ("42000", 1222, Fault.BUSY),
        ("42000", 51222, Fault.BUSY),
        ("42S02", 208, Fault.MISSING_TABLE),
        ("42000", 229, Fault.FORBIDDEN),
        ("42000", 262, Fault.FORBIDDEN),
        ("42000", 297, Fault.FORBIDDEN),
        ("42000", 2760, Fault.FORBIDDEN),
        ("25000", 3906, Fault.READ_ONLY),
        ("42000", 3908, Fault.READ_ONLY),
        ("42000", 978, Fault.READ_ONLY),
        ("28000", 18456, Fault.UNREACHABLE),
        ("42000", 4060, Fault.UNREACHABLE),
        ("HY000", 596, Fault.UNREACHABLE),
        ("08001", 10061, Fault.UNREACHABLE),
        ("08S01", 104, Fault.UNREACHABLE),
        ("HYT00", 0, Fault.UNREACHABLE),
        ("42000", 102, Fault.OTHER),
        ("HY000", 0, Fault.OTHER),
    ],
)
def test_errors_have_a_meaning(state: str, number: int, fault: Fault) -> None:
    assert fault_of(refused(Error, state, number, "No."), DRIVER) is fault


def test_the_words_of_the_driver_are_understood() -> None:
    assert fault_of(deadlock(), DRIVER) is Fault.CONFLICT
    assert fault_of(lost(), DRIVER) is Fault.UNREACHABLE
    assert fault_of(duplicate(7), DRIVER) is Fault.ROW
    timeout = OperationalError("HYT00", "[HYT00] [unixODBC][Microsoft]Login timeout expired (0) (SQLDriverConnect)")
    assert fault_of(timeout, DRIVER) is Fault.UNREACHABLE


@given(value=st.sampled_from(["(208) (SQLExecDirectW)", "(1205) (SQLExecute)", "); [42S02] x (208) (SQLExecute"]))
def test_a_value_that_looks_like_a_number_of_the_server_is_none(value: str) -> None:
    """The server repeats what was refused."""
    assert number_of(duplicate(value)) == 2627
    assert fault_of(duplicate(value), DRIVER) is Fault.ROW


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (OverflowError("int too big to convert"), Fault.ROW),
        (UnicodeEncodeError("utf-16-le", "\ud800", 0, 1, "surrogates not allowed"), Fault.ROW),
        (ProgrammingError("Attempt to use a closed connection."), Fault.OTHER),
        (Error(), Fault.OTHER),
        (IntegrityError("23000"), Fault.OTHER),
        (ValueError("(208) (SQLExecute)"), Fault.OTHER),
        (InvalidOption("no"), Fault.OTHER),
    ],
    ids=repr,
)
def test_errors_without_a_number(error: Exception, fault: Fault) -> None:
    assert fault_of(error, DRIVER) is fault
