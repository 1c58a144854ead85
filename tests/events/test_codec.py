"""Payloads and headers to text and back: verbatim or refused, with the path of the part that is to blame."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aftercommit import EventEnvelope, InvalidPayload, UndecodableRow
from aftercommit.events.codec import checked_json, decode_headers, encode_headers, encode_json
from aftercommit.writing.compose import Composer

NAN, INFINITY = math.nan, math.inf


@dataclass
class Order:
    id: Any = 1
    lines: list[Any] = field(default_factory=list)
    _private: Any = None


class Line(msgspec.Struct):
    amount: Any


class Renamed(msgspec.Struct, rename="camel"):
    total_amount: Any


class Broken(Enum):
    RATE = NAN


class Text(str):
    __slots__ = ()


def encode_payload(value: object) -> str | bytes:
    """As write() does."""
    return Composer().compose("A", value).payload


def refused(build) -> InvalidPayload:
    with pytest.raises(InvalidPayload) as caught:
        build()
    assert caught.value.code == "AC012"
    assert caught.value.fix
    return caught.value


# --- JSON text


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}',
        ' {"b" : 1 ,\n "a":\t2}\r\n',
        "1234567890123456789012345678901234567890",
        "9223372036854775808",
        "-0.0",
        "1e400",
        "1E+2",
        "0.10000000000000000000000001",
        "null",
        "true",
        '""',
        '"\\u0000"',
        '"\\ud83d\\ude80"',
        '"\u2028\u2029\x7f"',
        '"\\/"',
        "[]",
        "1 ",
    ],
    ids=repr,
)
def test_json_text_is_taken_verbatim(text):
    """F74, F78: duplicate keys, order, spacing and the spelling of numbers are the writer's own."""
    assert checked_json(text) == encode_payload(text) == text
    assert EventEnvelope("A", payload_json=text).payload_json == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "{'a': 1}",
        '{"a": 1,}',
        "[1 2]",
        "{} {}",
        "nul",
        "01",
        "1.",
        ".5",
        "+1",
        "0x1",
        "NaN",
        "Infinity",
        '[-Infinity, "a"]',
        "hello",
        '"a\x00b"',
        '"a\nb"',
        '"\\q"',
        '"\\uZZZZ"',
        '"\\ud800"',
        '"unterminated',
        "\ufeff{}",
        "{}\x00",
        "// comment\n{}",
    ],
    ids=repr,
)
def test_text_that_is_no_json_is_refused(text):
    """F73: NaN, control characters, a byte order mark and lone surrogates are not JSON that all can read."""
    error = refused(lambda: checked_json(text))

    assert "not valid JSON" in error.message
    assert repr(text) in error.message
    refused(lambda: EventEnvelope("A", payload_json=text))


@pytest.mark.parametrize("text", ['"\ud800"', '"a\udfff"', '{"\ud800": 1}'], ids=ascii)
def test_a_lone_surrogate_is_refused(text):
    """F73: no UTF-8 can carry it."""
    assert "surrogate" in refused(lambda: encode_payload(text)).message


#: What a RecursionError says; since Python 3.14 it is a matter of memory how deep is too deep, and more than 100,000.
TOO_DEEP = re.compile("recursion|Stack overflow")


@pytest.mark.parametrize(
    "text", ["[" * 400_000, "[" * 400_000 + "]" * 400_000, '{"a":' * 100_000], ids=["[", "[]", "{"]
)
def test_text_that_is_nested_too_deeply_is_refused(text):
    error = refused(lambda: encode_payload(text))

    assert TOO_DEEP.search(error.message) or "truncated" in error.message, "whichever is found first"
    assert len(error.message) < 300


def test_a_long_text_is_quoted_in_short():
    error = refused(lambda: checked_json("x" * 1_000_000))

    assert "'xxxxxxxxx" in error.message
    assert len(error.message) < 250


def test_text_of_a_subclass_becomes_plain_text():
    """What is delivered now is what is read back later."""
    assert type(encode_payload(Text("1"))) is str
    assert type(EventEnvelope("A", payload_json=Text("1")).payload) is str


# --- bytes and None


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_bytes_are_taken_as_they_are(buffer):
    for content in (b"", b"\x00\xff", b"{not json"):
        encoded = encode_payload(buffer(content))

        assert encoded == content
        assert type(encoded) is bytes


def test_a_buffer_is_copied():
    """TC-008."""
    source = bytearray(b"before")
    encoded, viewed = encode_payload(source), encode_payload(memoryview(source))

    source[:] = b"after!"

    assert encoded == viewed == b"before"


def test_none_is_refused_with_a_hint():
    error = refused(lambda: encode_payload(None))

    assert "None" in error.message
    assert "'null'" in error.fix
    assert encode_payload("null") == "null"


# --- objects


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": [True, None, "é"]}, '{"b":1,"a":[true,null,"é"]}'),
        ([], "[]"),
        (0, "0"),
        (False, "false"),
        (Order(7, [Line(1.5)]), '{"id":7,"lines":[{"amount":1.5}],"_private":null}'),
        (Renamed(None), '{"totalAmount":null}'),
        (2**63, "9223372036854775808"),
        (-(2**63) - 1, "-9223372036854775809"),
        (10**40, "1" + "0" * 40),
        (-0.0, "-0.0"),
        ({1: "a", 2.5: "b"}, '{"1":"a","2.5":"b"}'),
        ({"a": "a\x00b"}, '{"a":"a\\u0000b"}'),
        (Decimal("0.10"), '"0.10"'),
        (UUID(int=7), '"00000000-0000-0000-0000-000000000007"'),
        ({"raw": b"\xff"}, '{"raw":"/w=="}'),
        (datetime(2025, 1, 1, tzinfo=UTC), '"2025-01-01T00:00:00Z"'),
        (datetime(2025, 1, 1), '"2025-01-01T00:00:00"'),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_objects_are_encoded_as_json(value, text):
    """F78."""
    assert encode_payload(value) == encode_json(value) == text


@pytest.mark.parametrize("number", [NAN, INFINITY, -INFINITY], ids=str)
@pytest.mark.parametrize(
    ("nest", "path"),
    [
        (lambda x: x, "payload"),
        (lambda x: [1, None, x], "payload[2]"),
        (lambda x: {"a": {"b c": x}}, "payload['a']['b c']"),
        (lambda x: (None, {"a": (x,)}), "payload[1]['a'][0]"),
        (lambda x: Order(lines=[Line(1), Line(x)]), "payload.lines[1].amount"),
        (lambda x: Order(_private=x), "payload._private"),
        (lambda x: Renamed([x]), "payload.total_amount[0]"),
        (lambda x: {"a": Order(id={"x": Line([x])})}, "payload['a'].id['x'].amount[0]"),
        (lambda x: {7: x}, "payload[7]"),
        (lambda x: {"first": x, "second": x}, "payload['first']"),
        (lambda x: {"set": {x}}, "payload['set'][0]"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nan_and_infinity_are_refused_with_their_path(nest, path, number):
    """msgspec would write null in their place."""
    error = refused(lambda: encode_payload(nest(number)))

    assert error.message.startswith(f"{path} is {number!r}")


def test_nan_is_found_at_any_depth():
    value = NAN
    for _ in range(300):
        value = [value]

    assert ("payload" + "[0]" * 300 + " is nan") in refused(lambda: encode_json(value)).message


def test_nan_is_found_behind_an_enum_and_in_an_attrs_class():
    assert "payload['x'].value is nan" in refused(lambda: encode_json({"x": Broken.RATE})).message

    class Point:
        """As attrs makes them, as far as an encoder looks."""

        __attrs_attrs__ = (SimpleNamespace(name="x"),)

        def __init__(self) -> None:
            self.x = NAN

    assert msgspec.json.encode(Point()) == b'{"x":null}'
    assert "payload.x is nan" in refused(lambda: encode_json(Point())).message


def test_a_payload_full_of_nulls_is_fine():
    assert encode_json({"a": None, "b": ["null", None]}) == '{"a":null,"b":["null",null]}'


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "payload is a object"),
        ({"a": [1, object()]}, "payload['a'][1] is a object"),
        (Order(lines=[Line(lambda: 1)]), "payload.lines[0].amount is a function"),
        ({"a": 1j}, "payload['a'] is a complex"),
        ({"a": ["fine", "not \ud800"]}, "payload['a'][1] is a str with a lone surrogate"),
        ({"\ud800": 1}, "surrogates not allowed"),
        ({None: 1}, "keys"),
        ({("a", 1): 1}, "keys"),
        ((each for each in [1]), "payload is a generator"),
        (MappingProxyType({"a": 1}), "mappingproxy"),
        (Order, "payload is a type"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_json_cannot_carry_is_refused_with_its_path(value, said):
    error = refused(lambda: encode_payload(value))

    assert said in error.message
    assert type(value).__name__ in error.message


def test_a_payload_that_holds_itself_is_refused_in_short_time():
    """Twice in itself: a search that goes down every way would never end."""
    value: list[Any] = []
    value += [value, value, {"again": value}]

    assert TOO_DEEP.search(refused(lambda: encode_payload(value)).message)


def test_a_part_that_was_encoded_already_is_checked_too():
    """msgspec.Raw goes into the text unseen."""
    assert encode_payload({"a": msgspec.Raw(b'{"b": 1}')}) == '{"a":{"b": 1}}'
    for part in (b"NaN", b"{", b'"\\q"'):
        refused(lambda part=part: encode_json({"a": msgspec.Raw(part)}))
    refused(lambda: encode_payload({"a": msgspec.Raw(b'"\xff"')}))


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(values)
def test_a_payload_comes_back_as_it_was_or_is_refused(value):
    """F73, F78: nothing is changed in silence."""
    if value is None or isinstance(value, str):
        value = [value]
    is_sound = _is_sound(value)
    try:
        text = encode_payload(value)
    except InvalidPayload:
        assert not is_sound
    else:
        assert is_sound
        assert json.loads(text) == value
        assert checked_json(text) == text


def _is_sound(value: Any) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case str():
            return not any("\ud800" <= each <= "\udfff" for each in value)
        case list():
            return all(map(_is_sound, value))
        case dict():
            return all(map(_is_sound, value.values()))
        case _:
            return True


# --- headers


@pytest.mark.parametrize("headers", [{}, None])
def test_no_headers_are_no_text(headers):
    """TC-226."""
    assert encode_headers(headers) is None


def test_headers_keep_their_order():
    """TC-227."""
    assert encode_headers({"a": "1", "b": "2"}) == '{"a":"1","b":"2"}'
    assert encode_headers({"b": "2", "a": "1"}) == '{"b":"2","a":"1"}'
    assert encode_headers(MappingProxyType({"a": "1"})) == '{"a":"1"}'


def test_special_characters_are_escaped():
    """TC-228."""
    assert encode_headers({"k": 'quote" line\nback\\slash\x00'}) == '{"k":"quote\\" line\\nback\\\\slash\\u0000"}'


def test_a_null_value_is_dropped_when_read():
    """TC-229."""
    text = encode_headers({"key": None, "other": "x"})

    assert text == '{"key":null,"other":"x"}'
    assert decode_headers(text) == {"other": "x"}


def test_a_null_name_is_refused():
    """TC-230; the envelope has refused it long before, see TC-007."""
    with pytest.raises(TypeError):
        encode_headers({None: "x"})


@pytest.mark.parametrize("text", ["{}", None, "", " { } "], ids=repr)
def test_no_text_is_no_headers(text):
    """TC-231."""
    assert decode_headers(text) == {}


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ('  {  "key"  :  "value"  }  ', {"key": "value"}),  # TC-232
        ('{"a":"\\u0048\\u0065\\u006c\\u006c\\u006f"}', {"a": "Hello"}),  # TC-235
        ('{"a":"\\t\\r\\u0000"}', {"a": "\t\r\x00"}),
        ('{"b":"2","a":"1"}', {"b": "2", "a": "1"}),
        ('{"a":"1","a":"2"}', {"a": "2"}),
        (b'{"a":"1"}', {"a": "1"}),
    ],
)
def test_headers_are_read_as_any_json(text, headers):
    assert decode_headers(text) == headers
    assert list(decode_headers(text)) == list(headers)


@pytest.mark.parametrize(
    "stored",
    [
        "[]",  # TC-233 from here
        '"text"',
        "1",
        "null",
        '{"a":"\\uZZZZ"}',  # TC-236 from here
        '{"a":"\\q"}',
        '{"a":"b',
        '{"a":1}',
        '{"a":{"b":"c"}}',
        "{'a':'b'}",
        "not json",
        "\x00",
        '{"a":"\\ud800"}',
        '{"a":"\ud800"}',
        b'{"a":"\xff"}',
        b'{"\xff":"a"}',
        b"\xff",
        '{"a":' + "[" * 100_000,
        5,
        1.5,
        ["a"],
    ],
    ids=lambda stored: ascii(stored)[:30],
)
def test_stored_headers_that_cannot_be_read_make_the_row_undecodable_and_nothing_else(stored):
    """TC-233, TC-236, F77: any other error would take the whole batch with it."""
    with pytest.raises(UndecodableRow) as caught:
        decode_headers(stored)

    assert "headers" in caught.value.message
    assert len(caught.value.message) < 300
    assert caught.value.fix


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_headers_come_back_as_they_were(headers):
    """TC-234."""
    read = decode_headers(encode_headers(headers))

    assert read == headers
    assert list(read) == list(headers)


def test_the_examples_of_the_reference_come_back():
    """TC-234."""
    headers = {"simple": "value", "quoted": 'say "hi"', "line": "a\nb", "back": "a\\b", "accent": "café"}

    assert decode_headers(encode_headers(headers)) == headers
