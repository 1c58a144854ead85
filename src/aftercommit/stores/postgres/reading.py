"""A session that reads a slot: it has the slot's lock, and turns what the server says into rows of the outbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from msgspec.structs import replace

from aftercommit.errors import StoreBusy, UndecodableRow
from aftercommit.events.claims import Claimed, ClaimRequest, Lease, RowKey, Undecodable, partition_of
from aftercommit.events.columns import CLAIMED, Kind
from aftercommit.events.envelope import EventStatus
from aftercommit.events.order import OrderKey
from aftercommit.ports.replication import Began, Change, Ended, Mark, SlotState, Wrote
from aftercommit.stores.postgres.capturing import Capturing
from aftercommit.stores.postgres.link import Link
from aftercommit.stores.postgres.pgoutput import (
    Begin,
    Commit,
    Insert,
    MalformedChange,
    Message,
    Relation,
    decode,
    place_text,
)
from aftercommit.stores.postgres.slots import mark_name, mark_of, state_of, text_of
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.rows import Times, claimed_of
from aftercommit.stores.sql.statements import Statements

#: The bytes of changes that are fetched at once, but for a single one that is larger.
MOST_BYTES: Final = 16 * 1024**2

#: How values are written as text, whatever the session would do by itself.
_PLAINLY: Final = (
    "SET client_encoding TO 'UTF8'; SET DateStyle TO 'ISO'; SET TimeZone TO 'UTC'; SET bytea_output TO 'hex'"
)

#: The code of a slot that is being read by somebody who has no lock of ours.
_IN_USE: Final = "55006"


class PostgresReading:
    """The port, over a connection that belongs to it. The number of what was read counts from what is confirmed."""

    def __init__(
        self,
        link: Link,
        dialect: Dialect,
        statements: Statements,
        capturing: Capturing,
        ended: Callable[[Link], None],
        *,
        ordered: bool,
    ) -> None:
        self._link, self._dialect, self._sql = link, dialect, statements
        self._capturing, self._ended = capturing, ended
        self._rows = Rows(dialect.times, ordered=ordered)
        self._system = ""

    async def lock(self) -> bool:
        """Whether nobody else has it."""
        await self._link.command(_PLAINLY)
        return bool((await self._ask("slot_lock"))[0][0])

    async def _ask(self, which: str, **values: object) -> list[Any]:
        statement, made = self._sql[which], self._capturing
        known = {"slot": made.slot, "publication": made.publication, "trigger": made.trigger}
        return (await self._link.run(statement.sql, statement.values({**known, **values}))).rows

    async def state(self) -> SlotState:
        return state_of((await self._ask("slot_state"))[0], self._capturing.slot)

    async def end(self) -> int:
        return int((await self._ask("slot_end"))[0][0])

    async def peek(self, skip: int, limit: int, owner: str) -> tuple[Sequence[Change], bool]:
        enough = min(skip + limit, 2**31 - 1)
        try:
            rows = await self._ask("slot_peek", skip=skip, limit=limit, enough=enough, most_bytes=MOST_BYTES)
        except Exception as error:
            if getattr(error, "sqlstate", None) == _IN_USE:
                raise StoreBusy(
                    f"somebody else reads the slot {self._capturing.slot}",
                    fix="give that reader and the tail a slot each",
                ) from error
            raise
        if any(later[0] <= row[0] for row, later in pairwise(rows)):
            raise MalformedChange("the changes came in another order than that of their commits")
        is_all = len(rows) < limit and sum(len(row[1]) for row in rows) < MOST_BYTES
        request = ClaimRequest(owner, limit, timedelta(0), float("-inf"))
        changes = [self._rows.change_of(decode(row[1]), request) for row in rows]
        return [change for change in changes if change is not None], is_all

    async def advance(self, place: int, mark: Mark | None) -> None:
        if mark is not None:
            await self.set_mark(mark)
        await self._ask("slot_advance", place=place_text(place))

    async def mark(self) -> Mark | None:
        ((text, self._system),) = await self._ask("slot_mark", name=mark_name(self._capturing.slot))
        return None if text is None else mark_of(text, self._system)

    async def set_mark(self, mark: Mark) -> None:
        statement = self._sql["set_setting"]
        value = text_of(mark, self._system)
        await self._link.execute(statement.sql, statement.bind(name=mark_name(self._capturing.slot), value=value))

    async def close(self) -> None:
        """The lock is given back at once: the server may take a moment to end a session."""
        with suppress(Exception):  # the session has ended, and the lock with it
            await self._link.command("SELECT pg_advisory_unlock_all()")
        self._ended(self._link)
        await self._link.leave()


class Rows:
    """Turns messages into changes. The server says once in a session what a table is like, before its first row."""

    def __init__(self, times: Times, *, ordered: bool) -> None:
        self._times, self._ordered = times, ordered
        self._columns: dict[int, tuple[str, ...]] = {}

    def change_of(self, message: Message, request: ClaimRequest) -> Change | None:
        match message:
            case Insert(number, values):
                return self._written(number, values, request)
            case Begin(commit_at, committed_at):
                return Began(commit_at, committed_at)
            case Commit(_, ends_at, committed_at):
                return Ended(ends_at, committed_at)
            case Relation(number, _, _, columns):
                self._columns[number] = columns
        return None

    def _written(self, number: int, texts: Sequence[str | None], request: ClaimRequest) -> Wrote:
        columns = self._columns.get(number, ())
        if len(columns) != len(texts):
            raise MalformedChange(f"a row of {len(texts)} values of a table with {len(columns)} columns")
        values = dict(zip(columns, texts, strict=True))
        key = RowKey(values["event_id"] or "", values["handler_id"] or "")
        is_captured = values["status"] == _DONE and values["lease_epoch"] == "0" and values["locked_by"] is None
        available_at = None if is_captured else _available_at(values)
        return Wrote(key, self._row(key, values, request), is_captured, values, available_at)

    def _row(self, key: RowKey, values: Mapping[str, str | None], request: ClaimRequest) -> Claimed | Undecodable:
        try:
            row: list[Any] = [
                text if (text := values[name]) is None or read is None else read(text) for name, read in _READERS
            ]
        except (ValueError, KeyError) as error:
            cause = UndecodableRow(
                f"the log has a row that cannot be read: {error}", fix="mend the row, then replay it"
            )
            return Undecodable(Lease(key, request.owner, 1, request.deadline), cause, self._order_key(key, values))
        claimed = claimed_of((*row, 0, False, None), request, self._times, datetime.now(UTC))
        return claimed if not self._ordered else replace(claimed, order_key=self._order_key(key, values))

    def _order_key(self, key: RowKey, values: Mapping[str, str | None]) -> OrderKey | None:
        name = values["event_key"] or key.event_id
        return OrderKey(partition_of(name), name) if self._ordered else None


def _instant(text: str) -> datetime:
    """In UTC without a zone, as a claim has it; this session writes it in UTC."""
    if not text.endswith("+00"):
        raise ValueError(f"{text!r} is no time in UTC")
    return datetime.fromisoformat(text[:-3])


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_DONE: Final = str(EventStatus.DONE.value)

#: How the text of each kind of column is read; other kinds are text.
_BY_KIND: Final[Mapping[Kind, Callable[[str], Any]]] = {
    **dict.fromkeys((Kind.SMALL, Kind.NUMBER, Kind.LARGE), int),
    Kind.BYTES: _bytes,
    Kind.INSTANT: _instant,
}

#: What a claim would have of a row, in order.
_READERS: Final = tuple((column.name, _BY_KIND.get(column.kind)) for column in CLAIMED)


def _available_at(values: Mapping[str, str | None]) -> datetime | None:
    try:
        text = values["available_at"]
        return None if text is None else datetime.fromisoformat(text)
    except ValueError:
        return None
