"""What PostgreSQL's own output plug-in says of committed transactions (protocol version 1, values as text). Bytes in,
values out; nothing here asks anybody."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from struct import Struct, error
from typing import Final, NamedTuple

#: Times are counted in microseconds from here.
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)

_BYTE, _SHORT, _WORD = Struct("!B"), Struct("!H"), Struct("!I")
_BEGIN: Final = Struct("!QqI")
_COMMIT: Final = Struct("!BQQq")
_COLUMN_TYPE: Final = Struct("!Ii")
_INSERT: Final = Struct("!xIBH")

#: Letters: a new row; a value that is NULL, or text.
_NEW, _NULL, _TEXT = b"Nnt"


class MalformedChange(ValueError):
    """A message that this decoder does not understand, and why."""


class Begin(NamedTuple):
    """A transaction begins, of those in the order of their commits."""

    #: Where its commit stands.
    commit_at: int
    committed_at: datetime
    transaction: int


class Commit(NamedTuple):
    """It is over. Whoever has read so far goes on from `ends_at`."""

    commit_at: int
    ends_at: int
    committed_at: datetime


class Relation(NamedTuple):
    """What a table is like from here on."""

    number: int
    schema: str
    table: str
    columns: tuple[str, ...]


class Insert(NamedTuple):
    """A row. Columns have text, or None for NULL."""

    relation: int
    values: tuple[str | None, ...]


class Other(NamedTuple):
    """What nobody here needs: the letter of its kind."""

    kind: str


Message = Begin | Commit | Relation | Insert | Other

#: Origins, types, updates, deletes, truncations and messages: a publication of inserts has none of most of them.
_OTHERS: Final = frozenset(b"OYUDTM")


def decode(data: bytes) -> Message:
    """One message. Raises MalformedChange, and nothing else, for whatever is none."""
    try:
        return _insert(data) if data[:1] == b"I" else _decode(_Reader(bytes(data)))
    except (error, IndexError, UnicodeDecodeError, OverflowError) as cause:
        raise MalformedChange(f"a change of {len(data)} bytes cannot be read: {cause}") from cause


def _decode(read: _Reader) -> Message:
    match chr(read.number(_BYTE)):
        case "B":
            commit_at, at, transaction = read.numbers(_BEGIN)
            message: Message = Begin(commit_at, _time(at), transaction)
        case "C":
            _, commit_at, ends_at, at = read.numbers(_COMMIT)
            message = Commit(commit_at, ends_at, _time(at))
        case "R":
            message = _relation(read)
        case kind if ord(kind) in _OTHERS:
            return Other(kind)
        case kind:
            raise MalformedChange(f"a change of the unknown kind {kind!r}")
    if not read.is_over:
        raise MalformedChange(f"there is more behind {message!r}")
    return message


def _relation(read: _Reader) -> Relation:
    number, schema, table = read.number(_WORD), read.text(), read.text()
    read.number(_BYTE)  # how rows are told apart in updates
    columns = []
    for _ in range(read.number(_SHORT)):
        read.number(_BYTE)
        columns.append(read.text())
        read.numbers(_COLUMN_TYPE)
    return Relation(number, schema, table, tuple(columns))


def _insert(data: bytes) -> Insert:
    """Spelled out: each event comes by here, with nearly thirty columns."""
    relation, kind, count = _INSERT.unpack_from(data)
    if kind != _NEW:
        raise MalformedChange(f"an insert without a new row, but with {chr(kind)!r}")
    values: list[str | None] = []
    at, size = _INSERT.size, len(data)
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _NULL:
            values.append(None)
        elif kind == _TEXT:
            end = at + 4 + int.from_bytes(data[at : at + 4])
            if end > size:
                raise MalformedChange(f"a value goes on to {end}, and {size} bytes are there")
            values.append(data[at + 4 : end].decode())
            at = end
        else:
            # "u" is a large value that an update left as it was; an insert has all of its values.
            raise MalformedChange(f"a value of the kind {chr(kind)!r} in an insert")
    if at != size:
        raise MalformedChange(f"{size - at} bytes are behind an insert")
    return Insert(relation, tuple(values))


def _time(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


class _Reader:
    """Goes over the bytes of one message."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_over(self) -> bool:
        return self._at == len(self._data)

    def numbers(self, layout: Struct) -> tuple[int, ...]:
        found: tuple[int, ...] = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def number(self, layout: Struct) -> int:
        return self.numbers(layout)[0]

    def take(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise MalformedChange(f"{length} bytes were announced, and {len(self._data) - self._at} are there")
        taken = self._data[self._at : self._at + length]
        self._at += length
        return taken

    def text(self) -> str:
        """Up to a byte of zero."""
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise MalformedChange("a name does not end")
        text = self.take(end - self._at).decode()
        self._at += 1
        return text


# ---------------------------------------------------------------- places in the log


def place_of(text: str) -> int:
    """A place in the server's log, as it writes it: `16/B374D848`."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def place_text(place: int) -> str:
    return f"{place >> 32:X}/{place & 0xFFFFFFFF:X}"
