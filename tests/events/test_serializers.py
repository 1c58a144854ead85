"""Serializers: what goes in comes out, and what a format cannot carry is refused with the path of the field."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import InvalidPayload
from aftercommit.events.codec import JsonSerializer, MsgpackSerializer, Serializer, encoder, reason_of
from tests.events import shapes

BOTH = pytest.mark.parametrize("serializer", [JsonSerializer(), MsgpackSerializer()], ids=["json", "msgpack"])


def round_trip(serializer: Serializer, value: Any, kind: Any = None) -> Any:
    return serializer.decode(serializer.encode(value), kind or type(value))


# ---------------------------------------------------------------- round trips


@BOTH
@pytest.mark.parametrize("kind", shapes.CLASSES, ids=lambda kind: kind.__name__)
def test_every_shape_comes_back_as_it_was(serializer: Serializer, kind: Any) -> None:
    value = shapes.order(kind)
    back = round_trip(serializer, value, kind)
    assert back == value
    assert type(back) is type(value)


@BOTH
def test_models_come_back_inside_of_other_payloads(serializer: Serializer) -> None:
    value = shapes.Wrapped(shapes.order(shapes.OrderModel), [shapes.order(shapes.OrderModel, 8)])
    assert round_trip(serializer, value) == value


def test_json_is_text_and_msgpack_is_binary_and_both_say_what_they_are() -> None:
    assert isinstance(JsonSerializer(), Serializer)
    assert isinstance(MsgpackSerializer(), Serializer)
    assert (JsonSerializer().content_type, JsonSerializer().encode({"a": 1})) == ("application/json", '{"a":1}')
    assert (MsgpackSerializer().content_type, MsgpackSerializer().encode({"a": 1})) == (
        "application/msgpack",
        b"\x81\xa1a\x01",
    )


class Anything(msgspec.Struct):
    value: Any


def leaves(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    return st.none() | st.booleans() | integers | st.floats(allow_nan=False, allow_infinity=False) | st.text()


def trees(integers: st.SearchStrategy[int]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves(integers), lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4)
    )


def same(one: Any, other: Any) -> bool:
    """Equal in value, type, sign of zero and order of keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and (not isinstance(one, float) or math.copysign(1, one) == math.copysign(1, other))


FORTY_DIGITS = st.integers(-(10**40), 10**40)


@given(trees(st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**39 + 1]) | FORTY_DIGITS))
def test_json_is_exact(value: Any) -> None:
    """Integers of any size, key order, emoji, the sign of zero."""
    assert same(round_trip(JsonSerializer(), Anything(value)).value, value)
    assert same(round_trip(JsonSerializer(), value, dict), value)


@given(trees(st.integers(-(2**63), 2**64 - 1)) | st.binary())
def test_msgpack_is_exact_within_64_bits(value: Any) -> None:
    assert same(round_trip(MsgpackSerializer(), Anything(value)).value, value)
    assert same(round_trip(MsgpackSerializer(), value, dict), value)


def test_key_order_and_spelling_are_those_of_the_class() -> None:
    text = JsonSerializer().encode({"z": 1, "a": {"ü": "🦆", "b": 1.0}, "m": 10**40})
    assert text == '{"z":1,"a":{"ü":"🦆","b":1.0},"m":1' + "0" * 40 + "}"


# ---------------------------------------------------------------- pydantic


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(alias_generator=lambda name: name.upper(), extra="forbid")

    number: int
    street: str = pydantic.Field(validation_alias="road")

    @pydantic.computed_field
    def twice(self) -> int:
        return self.number * 2


class WireAliased(Aliased):
    model_config = pydantic.ConfigDict(serialize_by_alias=True)

    street: str


class Silent(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    ratio: float = 0.0


class Loud(Silent):
    model_config = pydantic.ConfigDict(ser_json_inf_nan="constants")


@BOTH
def test_a_model_reads_what_it_wrote_under_whatever_alias(serializer: Serializer) -> None:
    by_name, by_alias = Aliased(NUMBER=7, road="High Street"), WireAliased(NUMBER=7, STREET="High Street")
    assert round_trip(serializer, by_name) == by_name
    assert round_trip(serializer, by_alias) == by_alias
    assert JsonSerializer().encode(by_name) == '{"number":7,"street":"High Street"}'
    assert JsonSerializer().encode(by_alias) == '{"NUMBER":7,"STREET":"High Street"}'


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf])
def test_a_model_is_no_way_around_the_rules_of_json(ratio: float) -> None:
    """It may be set to write NaN, and by default it writes null for it."""
    with pytest.raises(InvalidPayload, match="cannot be encoded as JSON"):
        JsonSerializer().encode(Loud(ratio=ratio))
    with pytest.raises(InvalidPayload, match=r"payload\.ratio is (nan|-?inf), which has no form in JSON"):
        JsonSerializer().encode(Silent(ratio=ratio))
    with pytest.raises(InvalidPayload, match=r"payload\[0\]\.more is (nan|-?inf), which has no form in JSON"):
        JsonSerializer().encode([Silent(more=ratio)])


def test_pydantic_is_loaded_only_by_those_who_use_it() -> None:
    script = (
        "import sys, dataclasses; from aftercommit.events.codec import JsonSerializer\n"
        "@dataclasses.dataclass\nclass A: a: int\n"
        "s = JsonSerializer(); assert s.decode(s.encode(A(1)), A) == A(1)\n"
        "print([name for name in ('pydantic', 'attrs', 'attr') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- refusals


class Unknown:
    """Nothing that a format has."""


@dataclasses.dataclass
class Box:
    content: Any


@BOTH
@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Box(Unknown()), r"payload\.content is a Unknown"),
        (Box([1, {"deep": Unknown()}]), r"payload\.content\[1\]\['deep'\] is a Unknown"),
        ([Box("\ud800")], r"payload\[0\]\.content is a str with a lone surrogate"),
        (Unknown(), "payload is a Unknown"),
    ],
)
def test_what_cannot_be_encoded_is_named_by_its_path(serializer: Serializer, value: Any, path: str) -> None:
    with pytest.raises(InvalidPayload, match=rf"(?s)cannot be encoded as (JSON|MessagePack): {path}.*Fix: "):
        serializer.encode(value)


def test_msgpack_refuses_an_integer_beyond_64_bits_by_its_path() -> None:
    with pytest.raises(InvalidPayload, match=r"as MessagePack: payload\.content\[1\] is a int"):
        MsgpackSerializer().encode(Box([1, 2**64]))


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (shapes.Line, '{"article":7,"price":"1"}', r"Expected `str`, got `int` - at `\$\.article`"),
        (shapes.Line, '{"article":"pen"}', "missing required field `price`"),
        (shapes.OrderModel, '{"number":"x"}', r"valid integer.* - at `\$\.number`; Field required - at `\$\.placed`"),
        (shapes.OrderModel, "[]", r"- at `\$`"),
        (shapes.OrderStruct, '{"number":1.5}', r"Expected `int`, got `float` - at `\$\.number`"),
        (shapes.Line, '{"article"', "truncated"),
    ],
)
def test_what_does_not_fit_is_named_by_field_and_expected_type(kind: Any, text: str, said: str) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever its library raises
        JsonSerializer().decode(text, kind)
    assert pytest.raises(AssertionError, match=said).matches(AssertionError(reason_of(caught.value)))


def test_a_reason_tells_no_values() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        JsonSerializer().decode('{"number":"hunter2"}', shapes.OrderModel)
    assert "hunter2" in str(caught.value)
    assert "hunter2" not in reason_of(caught.value)


def test_decoding_is_strict() -> None:
    """The text "7" is no number, and 1 is no truth."""
    for text in ('{"article":"pen","price":true}', '{"article":null,"price":"1"}'):
        with pytest.raises(msgspec.ValidationError):
            JsonSerializer().decode(text, shapes.Line)


# ---------------------------------------------------------------- one's own


class Own:
    content_type = "application/x-own"

    def __init__(self, encode: Callable[[Any], Any]) -> None:
        self.encode = encode

    def decode(self, payload: Any, kind: type) -> Any:
        return payload


def test_the_output_of_ones_own_serializer_is_checked() -> None:
    buffer = bytearray(b"x")
    encoded = encoder(Own(lambda value: buffer))(1)
    buffer[:] = b"changed"
    assert encoded == b"x"
    assert encoder(Own(lambda value: '{"a": 1}'))(1) == '{"a": 1}'
    with pytest.raises(InvalidPayload, match="not valid JSON"):
        encoder(Own(lambda value: "<xml/>"))(1)
    with pytest.raises(InvalidPayload, match=r"(?s)Own\.encode\(\) gave a int.*Fix: return JSON text or bytes"):
        encoder(Own(lambda value: 1))(1)
    with pytest.raises(InvalidPayload, match=r"of type int cannot be encoded as application/x-own: ZeroDivisionError"):
        encoder(Own(lambda value: 1 // 0))(1)
