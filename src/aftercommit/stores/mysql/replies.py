"""What the server answers to a statement that gives no rows, read past the driver, whose own reading is many calls."""

from __future__ import annotations

from struct import pack
from typing import Final

import msgspec

#: The shortest answer there is: no error and no rows are told in less.
SHORTEST: Final = 11

#: Longer statements are parted by the driver.
_LONGEST: Final = 2**24 - 2

_QUERY: Final = 3
_MORE_RESULTS: Final = 8

#: How many bytes follow these, which stand for a longer number.
_LONGER: Final = {252: 2, 253: 3, 254: 8}


class Reply(msgspec.Struct, eq=False):
    """That it was done. Stands where the driver keeps the result of its last statement, with all that it looks for."""

    affected_rows: int
    insert_id: int
    server_status: int
    #: How many bytes it has.
    size: int
    warning_count: int
    has_next: bool = False
    unbuffered_active: bool = False
    message: bytes = b""
    field_count: int = 0
    rows: None = None
    description: None = None


def packet(text: bytes) -> bytes | None:
    """The statement as it is sent; None when it is too long for one packet."""
    return pack("<iB", len(text) + 1, _QUERY) + text if len(text) < _LONGEST else None


def reply_in(data: bytes | bytearray, at: int, end: int) -> Reply | None:
    """The one that begins at `at`; None when it is something else, has not come whole, or is the first of several."""
    if end - at < SHORTEST or data[at + 4] or data[at + 3] != 1:
        return None
    size = 4 + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
    if at + size > end:
        return None
    place = at + 5
    affected_rows, place = (data[place], place + 1) if data[place] < 251 else _longer(data, place)
    insert_id, place = (data[place], place + 1) if data[place] < 251 else _longer(data, place)
    status = data[place] | data[place + 1] << 8
    if status & _MORE_RESULTS:
        return None
    return Reply(affected_rows, insert_id, status, size, data[place + 2] | data[place + 3] << 8)


def _longer(data: bytes | bytearray, at: int) -> tuple[int, int]:
    end = at + 1 + _LONGER[data[at]]
    return int.from_bytes(data[at + 1 : end], "little"), end
