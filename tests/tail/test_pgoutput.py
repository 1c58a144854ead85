"""What the server says is read as it was meant, and nothing else is taken for it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.stores.postgres.pgoutput import (
    Begin,
    Commit,
    Insert,
    MalformedChange,
    Message,
    Other,
    Relation,
    decode,
    place_of,
    place_text,
)

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
PLACES = st.integers(0, 2**64 - 1)
NUMBERS = st.integers(0, 2**32 - 1)
TIMES = st.integers(-(10**15), 10**16).map(lambda micros: EPOCH + timedelta(microseconds=micros))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Begin, PLACES, TIMES, NUMBERS),
    st.builds(Commit, PLACES, PLACES, TIMES),
    st.builds(Relation, NUMBERS, TEXTS, TEXTS, st.lists(TEXTS, max_size=5).map(tuple)),
    st.builds(Insert, NUMBERS, st.lists(st.none() | TEXTS, max_size=5).map(tuple)),
)


def encoded(message: Message) -> bytes:
    """As the server writes it."""
    match message:
        case Begin(place, at, transaction):
            return b"B" + pack("!QqI", place, micros(at), transaction)
        case Commit(place, ends_at, at):
            return b"C" + pack("!BQQq", 0, place, ends_at, micros(at))
        case Relation(number, schema, table, columns):
            head = b"R" + pack("!I", number) + name(schema) + name(table) + b"d" + pack("!H", len(columns))
            return head + b"".join(pack("!B", 1) + name(column) + pack("!Ii", 25, -1) for column in columns)
        case Insert(number, values):
            return b"I" + pack("!I", number) + b"N" + pack("!H", len(values)) + b"".join(map(value, values))
    raise AssertionError(message)


def micros(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)


def name(text: str) -> bytes:
    return text.encode() + b"\0"


def value(text: str | None) -> bytes:
    return b"n" if text is None else b"t" + pack("!I", len(text.encode())) + text.encode()


@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert decode(encoded(message)) == message


@given(MESSAGES, st.data())
def test_a_message_that_is_cut_off_or_goes_on_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encoded(message)
    for wrong in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"!"):
        with pytest.raises(MalformedChange):
            decode(wrong)


@given(st.binary(max_size=60))
def test_whatever_comes_is_a_message_or_refused(data: bytes) -> None:
    with suppress(MalformedChange):
        decode(data)


def test_what_a_publication_of_inserts_does_not_need_is_passed_over() -> None:
    assert [decode(kind + b"whatever") for kind in (b"O", b"Y", b"U", b"D", b"T", b"M")] == [*map(Other, "OYUDTM")]
    with pytest.raises(MalformedChange, match="unknown kind"):
        decode(b"Z")


@given(PLACES)
def test_places_are_written_as_the_server_writes_them(place: int) -> None:
    assert place_of(place_text(place)) == place
    assert place_text(place_of("16/B374D848")) == "16/B374D848"
