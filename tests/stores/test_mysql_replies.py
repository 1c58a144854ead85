"""Answers that are read past the driver: they say what the driver's own reading would, however they arrive."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from struct import pack
from typing import Any, Final

import pymysql
import pytest
from pymysql.cursors import SSCursor

from aftercommit.events.claims import NewEvent
from aftercommit.ports import Colour
from aftercommit.stores.mysql.replies import SHORTEST, packet, reply_in
from aftercommit.testing.kit import event
from tests.stores.kit import run_in
from tests.stores.mysql_kit import DRIVERS, Table, connect, made, opened, parts_of, played, store_at

NUMBERS: Final = [0, 1, 250, 251, 252, 255, 256, 2**16 - 1, 2**16, 2**24 - 1, 2**24, 2**32, 2**63]


@pytest.fixture
def table(mysql_url: str) -> Iterator[Table]:
    table = made(mysql_url)
    table.clear()
    yield table
    table.close()


@pytest.fixture(params=DRIVERS)
def colour(request: pytest.FixtureRequest) -> Colour:
    return DRIVERS[request.param]


# ---------------------------------------------------------------- the bytes


def number(value: int) -> bytes:
    if value < 251:
        return bytes([value])
    mark, size = next((mark, size) for mark, size in ((252, 2), (253, 3), (254, 8)) if value < 256**size)
    return bytes([mark]) + value.to_bytes(size, "little")


def done(affected: int = 1, insert_id: int = 0, status: int = 3, warnings: int = 0, said: bytes = b"") -> bytes:
    body = b"\0" + number(affected) + number(insert_id) + pack("<HH", status, warnings) + said
    return len(body).to_bytes(3, "little") + b"\1" + body


@pytest.mark.parametrize("affected", NUMBERS)
@pytest.mark.parametrize("insert_id", NUMBERS)
def test_numbers_of_every_size_are_read(affected: int, insert_id: int) -> None:
    data = done(affected, insert_id, 2, 513, b"Rows matched: 1")
    reply = reply_in(b"xx" + data + b"behind", 2, 2 + len(data) + 6)
    assert reply is not None
    assert (reply.affected_rows, reply.insert_id, reply.server_status, reply.warning_count, reply.size) == (
        *(affected, insert_id, 2, 513),
        len(data),
    )


def test_an_answer_that_has_not_come_whole_is_none_yet() -> None:
    data = done(2**20, 2**40, said=b"x" * 300)
    assert [end for end in range(len(data) + 1) if reply_in(data, 0, end) is not None] == [len(data)]
    assert len(done()) == SHORTEST


@pytest.mark.parametrize(
    "data",
    [
        b"\x15\0\0\1\xff\x26\x04#23000Duplicate entry",  # an error
        b"\1\0\0\1\3" + b"\x10\0\0\2" + b"x" * 16,  # rows
        b"\7\0\0\1\xfb/etc/x",  # a file, please
        b"\7\0\0\0\0\0\0\2\0\0\0",  # of another statement
        done(status=3 | 8),  # the first of several
    ],
)
def test_what_is_something_else_is_left_to_the_driver(data: bytes) -> None:
    assert reply_in(data + b"more", 0, len(data) + 4) is None


def test_a_statement_is_sent_in_one_packet_unless_it_is_too_long() -> None:
    assert packet(b"COMMIT") == b"\7\0\0\0\3COMMIT"
    assert packet(b"x" * (2**24 - 3)) is not None
    assert packet(b"x" * (2**24 - 2)) is None


# ---------------------------------------------------------------- on the wire


class Trickle(io.RawIOBase):
    """One byte at a time."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return int(self._inner.readinto(memoryview(buffer)[:1]))


def in_pieces(raw: Any) -> None:
    if isinstance(raw, pymysql.Connection):
        raw._rfile = io.BufferedReader(Trickle(raw._rfile.detach()))
    else:
        whole = raw._proto.get_buffer
        raw._proto.get_buffer = lambda hint: whole(hint)[:1]


@pytest.mark.parametrize("arrives", [lambda _: None, in_pieces], ids=["at once", "in pieces"])
def test_statements_say_what_they_did(table: Table, colour: Colour, arrives: Callable[[Any], None]) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        arrives(tx._link.raw)
        for first in (1, 250, 260, 70_000, 2**24, 2**40):
            found = await tx.query("INSERT INTO numbered (id, word) VALUES (%s, %s)", [first, "a"])
            assert (found.rows, found.rowcount) == ([], 1)
            found = await tx.query("INSERT INTO numbered (word) VALUES (%s)", ("b",))
            assert (found.rowcount, found.lastrowid) == (1, first + 1)
        assert (await tx.query("UPDATE numbered SET word = %s", ("c",))).rowcount == 12
        assert (await tx.query("SELECT word FROM numbered WHERE id < %s", (3,))).rows == [("c",), ("c",)]
        assert (await tx.query("SELECT word FROM numbered WHERE id < 0", ())).rows == []
        with pytest.raises(store.executor.driver_error, match="Duplicate"):
            await tx.query("INSERT INTO numbered (id, word) VALUES (%s, 'd')", (1,))
        assert tx.is_open
        assert await tx.execute("INSERT INTO numbered (word) VALUES ('e'), ('e')") == 2
        await store.insert(tx, [NewEvent(event(event_id="one"), 0)])
        await tx.commit()
        assert await store.executor.fetch("SELECT count(*) FROM numbered") == [(14,)]

    table.execute("CREATE TABLE numbered (id BIGINT PRIMARY KEY AUTO_INCREMENT, word VARCHAR(9))")
    played(table, colour, scenario)
    assert [row["event_id"] for row in table.rows()] == ["one"]


def test_a_procedure_with_several_results_leaves_the_connection_in_step(table: Table, colour: Colour) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        assert (await tx.query("CALL several(%s)", (7,))).rows == [(7,)]
        assert tx.is_open
        assert (await tx.query("SELECT %s", (9,))).rows == [(9,)]
        await tx.query("CALL ending(%s)", (1,))
        assert not tx.is_open, "which says so in the last of its answers"
        await tx.end()

    table.execute("CREATE PROCEDURE several(IN n INT) BEGIN SELECT n; SELECT n + 1; END")
    table.execute("CREATE PROCEDURE ending(IN n INT) BEGIN SELECT n; COMMIT; END")
    try:
        played(table, colour, scenario)
    finally:
        table.execute("DROP PROCEDURE several")
        table.execute("DROP PROCEDURE ending")


def test_parameters_that_do_not_fit_are_the_drivers_own_error(table: Table, colour: Colour) -> None:
    async def scenario(store: Any) -> None:
        tx = await opened(store)
        with pytest.raises((TypeError, store.executor.driver_error)) as ours:
            await tx.query("SELECT %s", (1, 2))
        with pytest.raises((TypeError, store.executor.driver_error)) as theirs:
            cursor = tx.connection.cursor()
            done = cursor.execute("SELECT %s", (1, 2))
            await done if colour is Colour.ASYNC else None
        assert (type(ours.value), str(ours.value)) == (type(theirs.value), str(theirs.value))
        assert (await tx.query("SELECT %(one)s", {"one": 1})).rows == [(1,)]
        await tx.end()

    played(table, colour, scenario)


def test_rows_that_the_user_has_not_read_are_not_taken_for_the_answer(table: Table) -> None:
    async def whole() -> None:
        store = store_at(table.url)
        await store.open()
        raw = connect(table.url)
        cursor = raw.cursor(SSCursor)
        cursor.execute("SELECT 1 UNION SELECT 2 UNION SELECT 3")
        with pytest.warns(UserWarning, match="unbuffered"):
            await store.insert(store.executor.adopt(raw), [NewEvent(event(event_id="one"), 0)])
        raw.commit()
        raw.close()
        await store.close()

    run_in(Colour.BLOCKING, whole())
    assert [row["event_id"] for row in table.rows()] == ["one"]


def test_after_a_write_the_users_connection_tells_of_it(table: Table) -> None:
    async def whole() -> None:
        store = store_at(table.url)
        await store.open()
        raw = connect(table.url)
        tx = store.executor.adopt(raw)
        await store.insert(tx, [NewEvent(event(event_id="one"), 0)])
        first, position = tx.mark, raw.insert_id()
        await store.insert(tx, [NewEvent(event(event_id="two"), 0)])
        assert (raw.affected_rows(), raw.insert_id()) == (1, position + 1)
        assert first is not None
        assert tx.mark not in (None, first), "each statement leaves another mark"
        raw.commit()
        raw.close()
        await store.close()

    run_in(Colour.BLOCKING, whole())
    assert len(table.rows()) == 2


def test_an_interrupted_wait_for_an_answer_gives_the_connection_up(table: Table) -> None:
    """The answer is still on its way, and would be that of the next statement."""

    class Interrupted:
        def peek(self, _: int) -> bytes:
            raise KeyboardInterrupt

        def close(self) -> None: ...

    async def whole() -> None:
        store = store_at(table.url)
        await store.open()
        raw = pymysql.connect(**parts_of(table.url), charset="utf8mb4")
        raw._rfile = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            await store.insert(store.executor.adopt(raw), [NewEvent(event(event_id="one"), 0)])
        assert not raw.open
        await store.close()

    run_in(Colour.BLOCKING, whole())
    assert not table.rows()
