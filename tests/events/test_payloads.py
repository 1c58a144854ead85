"""What an outbox knows of payload classes: names, formats, routes, and what cannot be decoded."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Generic, TypedDict, TypeVar

import attrs
import msgspec
import pytest

from aftercommit import EventEnvelope, InvalidName, InvalidOption, UnroutableEvent
from aftercommit.errors import InvalidPayloadType, UndecodablePayload
from aftercommit.events.classes import outbox_event
from aftercommit.events.codec import JsonSerializer, MsgpackSerializer
from aftercommit.events.payloads import Encoded, PayloadTypes
from tests.events import shapes
from tests.events.shapes import OrderModel


@dataclasses.dataclass
class OrderEvent:
    number: int


@dataclasses.dataclass
class OrderPlaced(OrderEvent):
    total: int = 0


@dataclasses.dataclass(slots=True)
class OrderShipped(OrderEvent):
    street: str = ""


class Deeper(OrderPlaced):
    pass


@outbox_event(type="order.paid", version=2, key="number", context={"n": "number"})
@dataclasses.dataclass
class OrderPaid:
    number: int


T = TypeVar("T")


@dataclasses.dataclass
class Changed(Generic[T]):
    value: T


class Noted(TypedDict):
    text: str


class Upper:
    """A format of one's own: text in capitals, as bytes."""

    content_type = "application/x-upper"

    def encode(self, value: Any) -> bytes:
        return str(value.text).upper().encode()

    def decode(self, payload: Any, kind: Any) -> Any:
        return kind(payload.decode().lower())


@outbox_event(serializer=Upper())
class Shout:
    def __init__(self, text: str) -> None:
        self.text = text


def stored(encoded: Encoded, **changes: Any) -> EventEnvelope:
    """As it would be read back."""
    fields: dict[str, Any] = {
        "event_type": encoded.event_type,
        "content_type": encoded.content_type,
        "payload_version": encoded.payload_version,
    }
    kind = "payload_json" if isinstance(encoded.payload, str) else "payload_bytes"
    return EventEnvelope(**(fields | {kind: encoded.payload} | changes))


def written(types: PayloadTypes, value: Any, **changes: Any) -> EventEnvelope:
    return stored(types.encode(value), **changes)


def event(event_type: str, text: str = "{}", **fields: Any) -> EventEnvelope:
    return EventEnvelope(event_type, payload_json=text, **fields)


# ---------------------------------------------------------------- writing


def test_an_object_is_encoded_with_all_that_its_class_says() -> None:
    types = PayloadTypes()
    assert types.encode(OrderPaid(7)) == Encoded("order.paid", '{"number":7}', "application/json", 2, 7, {"n": "7"})
    assert types.encode(OrderPlaced(7)) == Encoded(
        "OrderPlaced", '{"number":7,"total":0}', "application/json", 1, None, None
    )
    assert types.encode(Shout("hey")) == Encoded("Shout", b"HEY", "application/x-upper", 1, None, None)


def test_under_another_name_an_object_keeps_what_else_its_class_says() -> None:
    types = PayloadTypes(MsgpackSerializer())
    assert types.encode_as("Paid", OrderPaid(7))[0] == "Paid"
    assert types.encode_as("Paid", OrderPaid(7))[3:] == (2, 7, {"n": "7"})
    assert types.encode_as("Cry", Shout("hey"))[1:3] == (b"HEY", "application/x-upper")
    assert types.encode_as("T", {"a": 1})[1:4] == (b"\x81\xa1a\x01", "application/msgpack", 1)


def test_what_is_written_by_name_has_the_version_of_the_class_of_that_name() -> None:
    """Else upcasters would run over data that is new already."""
    types = PayloadTypes()
    assert types.encode_as("order.paid", {"number": 7}).payload_version == 1
    types.names_for(OrderPaid)
    assert types.encode_as("order.paid", {"number": 7}).payload_version == 2
    assert types.encode_as("order.paid", OrderPlaced(7)).payload_version == 2
    assert types.versions.get("other", 1) == 1


def test_two_classes_of_one_name_are_refused_wherever_the_second_comes() -> None:
    @outbox_event(type="OrderPlaced")
    @dataclasses.dataclass
    class Other:
        number: int

    types = PayloadTypes()
    assert types.name_of(OrderPlaced) == "OrderPlaced"
    for claim in (lambda: types.name_of(Other), lambda: types.encode(Other(1)), lambda: types.names_for(Other)):
        with pytest.raises(InvalidName, match=r"(?s)two classes are named OrderPlaced: .*Other; .*Fix: rename one"):
            claim()
    assert types.name_of(OrderPlaced) == "OrderPlaced"
    assert PayloadTypes().name_of(Other) == "OrderPlaced"


# ---------------------------------------------------------------- routes


def test_an_annotation_stands_for_its_class_its_union_and_its_subclasses() -> None:
    """TC-327."""
    types = PayloadTypes()
    assert types.names_for(OrderPaid) == {"order.paid"}
    assert types.names_for(OrderPaid | Noted) == {"order.paid", "Noted"}
    assert types.names_for(Annotated[OrderPaid, "note"]) == {"order.paid"}
    assert types.names_for(Changed[int]) == {"Changed"}
    assert types.names_for(OrderEvent) == {"OrderEvent", "OrderPlaced", "OrderShipped", "Deeper"}
    assert types.matches(OrderEvent, "Deeper")
    assert types.matches(OrderEvent | Noted, "Noted")
    assert not types.matches(OrderPlaced, "OrderEvent")
    assert not types.matches(OrderEvent, "order.paid")


def test_subclasses_that_come_later_are_taken_too() -> None:
    @dataclasses.dataclass
    class Base:
        number: int

    types = PayloadTypes()
    types.names_for(Base)
    assert not types.matches(Base, "later.one")

    @outbox_event(type="later.one")
    @dataclasses.dataclass
    class Later(Base):
        pass

    assert types.matches(Base, "later.one")
    assert types.decode(written(types, Later(7)), Base) == Later(7)


@pytest.mark.parametrize("kind", shapes.CLASSES, ids=lambda kind: kind.__name__)
def test_every_shape_is_a_route_and_comes_back(kind: Any) -> None:
    types = PayloadTypes()
    assert types.names_for(kind) == {kind.__name__} | {each.__name__ for each in kind.__subclasses__()}
    if kind is shapes.OrderDict:
        encoded = types.encode_as("OrderDict", shapes.order(kind))
    else:
        encoded = types.encode(shapes.order(kind))
    assert types.decode(stored(encoded), kind) == shapes.order(kind)


class Bare:
    """No fields."""


@pytest.mark.parametrize("annotation", [Bare, int, dict, OrderPaid | None, list[OrderPaid], type(None)])
def test_what_no_payload_can_become_is_refused_as_a_route(annotation: Any) -> None:
    with pytest.raises(InvalidPayloadType, match=r"(?s)no payload can be decoded into .*Fix: use a dataclass"):
        PayloadTypes().names_for(annotation)


def test_a_route_whose_fields_cannot_be_resolved_says_so() -> None:
    kind = dataclasses.make_dataclass("Lost", [("other", "NowhereDefined")])
    with pytest.raises(InvalidPayloadType, match=r"Lost: .*NowhereDefined"):
        PayloadTypes().names_for(kind)
    with pytest.raises(InvalidPayloadType, match="is no class of payloads"):
        PayloadTypes().names_for("OrderPaid")


def test_a_class_with_a_serializer_of_its_own_is_a_route() -> None:
    types = PayloadTypes()
    assert types.names_for(Shout) == {"Shout"}
    assert types.decode(written(types, Shout("hey")), Shout).text == "hey"


def test_slots_leave_no_second_class_behind() -> None:
    """dataclass(slots=True) and attrs make a copy, and the first one stays among the subclasses for a while."""

    @dataclasses.dataclass
    class Base:
        number: int

    @dataclasses.dataclass(slots=True)
    class One(Base):
        street: str = ""

    @attrs.define
    class Two(Base):
        street: str = ""

    types = PayloadTypes()
    for kind in (One, Two):
        assert types.matches(Base, kind.__name__)
        assert type(types.decode(event(kind.__name__, '{"number":7}'), Base)) is kind


def test_two_subclasses_of_one_name_are_told_apart_by_what_was_declared() -> None:
    @dataclasses.dataclass
    class Base:
        number: int

    @outbox_event(type="same")
    class One(Base):
        pass

    @outbox_event(type="same")
    class Two(Base):
        pass

    types = PayloadTypes()
    assert types.matches(Base, "same")
    with pytest.raises(UndecodablePayload, match=r"several classes are named same: .*One, .*Two"):
        types.decode(event("same", '{"number":7}'), Base)
    types.name_of(One)
    assert type(types.decode(event("same", '{"number":7}'), Base)) is One


# ---------------------------------------------------------------- reading


def test_the_event_names_the_class_of_a_union_or_a_base_class() -> None:
    types = PayloadTypes()
    assert types.decode(event("OrderPlaced", '{"number":7,"total":3}'), OrderEvent) == OrderPlaced(7, 3)
    assert types.decode(event("OrderEvent", '{"number":7,"total":3}'), OrderEvent) == OrderEvent(7)
    assert types.decode(event("Noted", '{"text":"x"}'), OrderPaid | Noted) == {"text": "x"}
    assert types.decode(event("Changed", '{"value":7}'), Changed[int]) == Changed(7)
    with pytest.raises(UndecodablePayload, match="Expected `int`, got `str`"):
        types.decode(event("Changed", '{"value":"7"}'), Changed[int])


def test_a_handler_routed_by_name_takes_any_one_class() -> None:
    types = PayloadTypes()
    types.names_for(OrderPaid)
    later = event("order.paid", '{"number":7}', payload_version=2)
    assert types.decode(later, OrderEvent) == OrderEvent(7)
    assert types.decode(event("anything", '{"number":7}'), OrderEvent) == OrderEvent(7)
    with pytest.raises(UndecodablePayload, match="anything names none of them"):
        types.decode(event("anything"), OrderEvent | Noted)


@pytest.mark.parametrize(
    ("wanted", "value"), [(dict, {"a": 2**70}), (Any, {"a": 2**70}), (dict[str, int], {"a": 2**70})]
)
def test_plain_data_is_given_as_it_was_written(wanted: Any, value: Any) -> None:
    types = PayloadTypes()
    assert types.decode(event("T", f'{{"a":{2**70}}}', payload_version=9), wanted) == value
    assert types.name_of(OrderPlaced) == "OrderPlaced"


def test_what_does_not_fit_says_event_field_and_expected_type() -> None:
    wrong = event("OrderPlaced", '{"number":"seven"}')
    with pytest.raises(UndecodablePayload) as caught:
        PayloadTypes().decode(wrong, OrderPlaced)
    assert caught.value.message == (
        f"OrderPlaced {wrong.event_id} (version 1, application/json) is no OrderPlaced: "
        "Expected `int`, got `str` - at `$.number`"
    )
    assert caught.value.fix == "let the annotation take what was written or add an upcaster, then replay the event"
    assert isinstance(caught.value.__cause__, msgspec.ValidationError)


@pytest.mark.parametrize("kind", [OrderPlaced, OrderModel])
def test_a_field_that_is_not_there_may_have_a_default(kind: Any) -> None:
    with pytest.raises(UndecodablePayload, match=r"(missing required field|Field required)") as caught:
        PayloadTypes().decode(event(kind.__name__, "{}"), kind)
    assert caught.value.fix == "give the field a default or add an upcaster, then replay the event"


@pytest.mark.parametrize("text", ["null", "[]", '"x"', "7", '{"number":null}', '{"number":1e400}', "{}"])
def test_whatever_is_stored_ends_in_the_same_error(text: str) -> None:
    """TC-350."""
    with pytest.raises(UndecodablePayload):
        PayloadTypes().decode(event("OrderPlaced", text), OrderPlaced)


# ---------------------------------------------------------------- formats


def test_rows_are_read_by_their_content_type_whatever_writes_now() -> None:
    """TC-351: a change of the format strands nothing."""
    json, msgpack = PayloadTypes(), PayloadTypes(MsgpackSerializer())
    for writer, reader in ((json, msgpack), (msgpack, json), (json, json), (msgpack, msgpack)):
        assert reader.decode(written(writer, OrderPlaced(7, 3)), OrderPlaced) == OrderPlaced(7, 3)
    assert json.decode(written(json, OrderPlaced(7), content_type="Application/JSON; charset=utf-8"), OrderPlaced)


def test_what_rows_say_of_themselves_fills_no_memory() -> None:
    """Whoever writes them may say something else each time."""
    types = PayloadTypes()
    for number in range(1, 50):
        types.decode(event("any", '{"number":7}', payload_version=number), OrderEvent)
        types.decode(event("OrderEvent", '{"number":7}', content_type=f"application/json; n={number}"), OrderEvent)
    assert len(types._ready) + len(types._readers) < 10


def test_a_format_of_ones_own_is_read_as_long_as_it_is_named() -> None:
    old, new = PayloadTypes(Upper()), PayloadTypes([JsonSerializer(), Upper()])
    row = event("OrderEvent").replace(payload_bytes=b"7", content_type="application/x-upper")
    assert old.decode(row, OrderEvent).number == "7"
    assert new.decode(row, OrderEvent).number == "7"
    assert new.encode(OrderEvent(7)).content_type == "application/json"
    with pytest.raises(
        UndecodablePayload, match=r"(?s)no serializer reads application/x-upper; known are application/json"
    ):
        PayloadTypes().decode(row, OrderEvent)
    with pytest.raises(UndecodablePayload, match="no serializer reads application/octet-stream"):
        PayloadTypes().decode(EventEnvelope("OrderEvent", payload_bytes=b"7"), OrderEvent)


def test_a_class_is_read_by_its_own_serializer_among_several_of_one_content_type() -> None:
    class Reversed(Upper):
        def decode(self, payload: Any, kind: Any) -> Any:
            return kind(payload.decode()[::-1])

    @outbox_event(serializer=Reversed())
    class Mirror(Shout):
        pass

    types = PayloadTypes([JsonSerializer(), Upper()])
    row = event("any").replace(payload_bytes=b"ABC", content_type="application/x-upper")
    assert types.decode(row, Shout).text == "abc"
    assert types.decode(row, Mirror).text == "CBA"


def test_a_serializer_may_take_the_place_of_ours() -> None:
    class Loud(JsonSerializer):
        def encode(self, value: Any) -> str:
            return super().encode({"loud": value})

    assert PayloadTypes(Loud()).encode(OrderEvent(7)).payload == '{"loud":{"number":7}}'


@pytest.mark.parametrize("serializer", ["json", JsonSerializer, 7, [JsonSerializer], object()])
def test_what_is_no_serializer_is_refused(serializer: Any) -> None:
    with pytest.raises(InvalidOption, match=r"(?s)the serializer .* has no content_type.*Fix: "):
        PayloadTypes(serializer)


# ---------------------------------------------------------------- versions


def test_a_newer_version_is_left_to_a_process_that_knows_it() -> None:
    """With unroutable_grace it waits for the deploy; without, it is dead, with this reason."""
    row = event("order.paid", '{"number":7}', payload_version=3)
    with pytest.raises(
        UnroutableEvent, match=r"(?s)is of version 3, and .* OrderPaid only up to version 2.*Fix: deploy"
    ):
        PayloadTypes().decode(row, OrderPaid)
