"""@outbox_event: checked against the class when it is decorated, in either order of decorators."""

import dataclasses
from enum import Enum, StrEnum
from typing import Any, NamedTuple, TypedDict
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from aftercommit import InvalidHeaders, InvalidName
from aftercommit.errors import InvalidPayloadType
from aftercommit.events.classes import Marks, marks_of, outbox_event
from aftercommit.events.codec import JsonSerializer, MsgpackSerializer


@dataclasses.dataclass
class Customer:
    id: int
    parent: "Customer | None" = None

    def ref(self) -> str:
        return f"c{self.id}"

    @classmethod
    def kind(cls) -> str:
        return cls.__name__

    @staticmethod
    def plain() -> str:
        return "plain"

    def failing(self) -> str:
        raise RuntimeError("password=secret")


class Line(TypedDict):
    items: int
    customer: Customer


class Plain:
    """Says nothing of its attributes."""

    def __init__(self) -> None:
        self.hidden = "here"


def key_of(value: Any) -> Any:
    marks = marks_of(type(value))
    assert marks is not None
    assert marks.key is not None
    return marks.key(value)


def context_of(value: Any) -> Any:
    marks = marks_of(type(value))
    assert marks is not None
    assert marks.context is not None
    return marks.context(value)


def marked(key: Any = None, **marks: Any) -> Any:
    """A dataclass with these marks."""

    @outbox_event(key=key, **marks)
    @dataclasses.dataclass
    class Order:
        number: int
        customer: Customer
        anything: Any = None
        plain: Plain | None = None
        region: str = "north"
        data: dict[str, Any] = dataclasses.field(default_factory=dict)
        typed: Line | None = None
        line: Line = dataclasses.field(default_factory=lambda: Line(items=1, customer=Customer(1)))

        @property
        def place(self) -> Customer:
            return self.customer

        def method(self) -> str:
            return "x"

        def with_more(self, more: int) -> str:
            return "x" * more

        async def later(self) -> str:
            return "x"

    return Order


# ---------------------------------------------------------------- the class


def test_a_class_is_marked_with_and_without_arguments() -> None:
    @outbox_event
    class Bare:
        pass

    @outbox_event(type="order.placed", version=3, serializer=MsgpackSerializer())
    class Full:
        pass

    marks = marks_of(Full)
    assert marks_of(Bare) == Marks()
    assert marks is not None
    assert (marks.type, marks.version, type(marks.serializer)) == ("order.placed", 3, MsgpackSerializer)
    assert marks_of(Plain) is None
    assert (Bare.__name__, Full.__name__) == ("Bare", "Full")


class Kinds(Enum):
    PLACED = 1


class Names(StrEnum):
    PLACED = "order.placed"


@pytest.mark.parametrize(("given", "name"), [(Kinds.PLACED, "PLACED"), (Names.PLACED, "order.placed")])
def test_a_type_may_be_an_enum_member(given: Any, name: str) -> None:
    assert marks_of(marked(type=given)).type == name  # type: ignore[union-attr]


def both_orders(decorate: Any) -> list[Any]:
    def fresh() -> Any:
        class Order:
            number: int
            customer: Customer

        return Order

    mark = outbox_event(key="customer.id", context={"n": "number"})
    return [mark(decorate(fresh())), decorate(mark(fresh()))]


@pytest.mark.parametrize(
    "decorate",
    [
        dataclasses.dataclass,
        dataclasses.dataclass(frozen=True, slots=True),
        attrs.define,
        attrs.frozen,
        attrs.define(slots=False),
        pydantic.dataclasses.dataclass,
    ],
)
def test_the_order_of_decorators_does_not_matter(decorate: Any) -> None:
    for kind in both_orders(decorate):
        value = kind(number=7, customer=Customer(3))
        assert (key_of(value), context_of(value)) == (3, {"n": "7"})


def test_structs_models_and_named_tuples_are_marked_too() -> None:
    @outbox_event(key="customer.id")
    class Struct(msgspec.Struct, frozen=True):
        customer: Customer

    @outbox_event(key="customer.id")
    class Model(pydantic.BaseModel):
        customer: Customer

    @outbox_event(key="customer.id")
    class Tuple(NamedTuple):
        customer: Customer

    @outbox_event(key="number")
    @attrs.define(slots=False)
    class Untyped:
        number = attrs.field()

    assert [key_of(kind(customer=Customer(3))) for kind in (Struct, Model, Tuple)] == [3, 3, 3]
    assert key_of(Untyped(4)) == 4
    assert JsonSerializer().encode(Model(customer=Customer(3))) == '{"customer":{"id":3,"parent":null}}'


def test_a_subclass_inherits_all_but_type_and_version() -> None:
    own = MsgpackSerializer()

    @outbox_event(type="order.event", version=4, key="number", context={"n": "number"}, serializer=own)
    @dataclasses.dataclass
    class Base:
        number: int
        street: str = ""

    class Heir(Base):
        pass

    @outbox_event(type="other", version=2, key="street")
    class Other(Base):
        pass

    heir, other = marks_of(Heir), marks_of(Other)
    assert heir is not None
    assert other is not None
    assert (heir.type, heir.version, heir.serializer) == (None, 1, own)
    assert (other.type, other.version, other.serializer) == ("other", 2, own)
    assert (key_of(Heir(7)), context_of(Heir(7))) == (7, {"n": "7"})
    assert (key_of(Other(7, "s")), context_of(Other(7, "s"))) == ("s", {"n": "7"})
    assert marks_of(Base).version == 4  # type: ignore[union-attr]


# ---------------------------------------------------------------- key and context


@pytest.mark.parametrize(
    ("getter", "key"),
    [
        ("number", 7),
        ("customer.id", 3),
        ("place.id", 3),
        ("anything.imag", 0),
        ("plain.hidden", "here"),
        ("customer.parent.id", 5),
        ("#this.number", 7),
        ("#root.customer.id", 3),
        ("#event.place.id", 3),
        ("method()", "x"),
        ("#event.method()", "x"),
        ("#event.customer.parent.ref()", "c5"),
        ("customer.ref().upper()", "C3"),
        ("customer.kind()", "Customer"),
        ("customer.plain()", "plain"),
        ("anything.bit_length()", 3),
        ("'orders'", "orders"),
        ('"orders"', "orders"),
        ("data.id", 9),
        ("data.items", "all of them"),
        ("data['x-id']", "header"),
        ('#event.data["x-id"]', "header"),
        ("data.deep.id", 11),
        ("data.deep.customer.ref()", "c12"),
        ("typed.items", 13),
        ("typed.customer.id", 14),
        (lambda order: f"{order.region}/{order.number}", "north/7"),
        (lambda _: "order", "order"),
        (lambda order: order.method(), "x"),
        (lambda order, more="default": more, "default"),
    ],
)
def test_a_key_is_a_path_or_a_function(getter: Any, key: Any) -> None:
    """TC-435."""
    data = {"id": 9, "items": "all of them", "x-id": "header", "deep": {"id": 11, "customer": Customer(12)}}
    typed: Line = {"items": 13, "customer": Customer(14)}
    arguments = (7, Customer(3, Customer(5)), 7, Plain(), "north", data, typed)
    assert key_of(marked(getter)(*arguments)) == key
    assert context_of(marked(context={"k": getter})(*arguments)) == {"k": str(key)}


def test_context_is_taken_entry_by_entry_or_by_one_function() -> None:
    """TC-438, TC-439."""
    kind = marked("number", context={"customer": "customer.id", "region": "region", "source": lambda _: "shop"})
    assert context_of(kind(7, Customer(3))) == {"customer": "3", "region": "north", "source": "shop"}
    assert key_of(kind(7, Customer(3))) == 7
    assert context_of(marked(context={})(7, Customer(3))) == {}
    assert context_of(marked(context=lambda order: {"region": order.region})(7, Customer(3))) == {"region": "north"}
    assert context_of(marked(context={"u": lambda _: UUID(int=1)})(7, Customer(3))) == {"u": str(UUID(int=1))}


@pytest.mark.parametrize("path", ["customer.parent.id", "anything", lambda order: None, lambda order: 1 // 0])
def test_a_key_that_is_not_there_is_refused_when_written(path: Any) -> None:
    """TC-437."""
    with pytest.raises(InvalidName, match=r"(?s)the key of Order .*Fix: "):
        key_of(marked(path)(7, Customer(3)))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (
            "customer.parent.id",
            "the step id after customer.parent failed with AttributeError: 'NoneType' object has no",
        ),
        ("#event.customer.parent.ref()", r"the step ref\(\) after customer.parent failed with AttributeError"),
        ("data.nowhere.id", "the step nowhere after data failed with KeyError: 'nowhere'"),
        ("data['no-where']", r"the step \['no-where'\] after data failed with KeyError"),
        ("data.deep['a'].b", r"the step b after data.deep\['a'\] failed with AttributeError: 'int' object"),
        ("customer.failing()", r"the step failing\(\) after customer failed with RuntimeError: password=\*\*\*"),
        ("plain.hidden", "the step hidden after plain failed"),
    ],
)
def test_a_way_that_leads_nowhere_says_at_which_step(path: str, said: str) -> None:
    """TC-437."""
    order = marked(path, context={"c": path})(7, Customer(3), data={"deep": {"a": 1}})
    with pytest.raises(InvalidName, match=said) as caught:
        key_of(order)
    assert repr(path) in caught.value.message
    with pytest.raises(InvalidHeaders, match=said):
        context_of(order)


@pytest.mark.parametrize(
    "path", ["customer.parent.id", "anything", "customer", lambda order: None, lambda order: 1.5, lambda order: True]
)
def test_context_that_is_no_text_is_refused_when_written(path: Any) -> None:
    """TC-437."""
    with pytest.raises(InvalidHeaders, match=r"(?s)the context entry 'c' of Order .*Fix: "):
        context_of(marked(context={"c": path})(7, Customer(3)))
    with pytest.raises(InvalidHeaders, match=r"the context of Order could not be taken by .*<lambda>: ZeroDivision"):
        context_of(marked(context=lambda order: 1 // 0)(7, Customer(3)))


# ---------------------------------------------------------------- bad input


async def later(order: Any) -> str:
    return ""


@pytest.mark.parametrize(
    ("getter", "said"),
    [
        ("nubmer", "Order has no attribute 'nubmer', as in 'nubmer'; it has number, customer, anything"),
        ("customer.name", "Customer has no attribute 'name', as in 'customer.name'; it has id, parent"),
        ("place.name", "Customer has no attribute 'name'"),
        ("region.code", "str has no attribute 'code'"),
        ("method", "'method' of Order is a method"),
        ("region.upper", "'upper' of str is a method"),
        ("", "is no attribute path"),
        ("customer..id", "is no attribute path: it cannot be read from '.id' on"),
        ("customer.", "is no attribute path"),
        (".customer", "is no attribute path"),
        ("customer id", "is no attribute path: it cannot be read from ' id' on"),
        ("#event", "is no attribute path: it ends there"),
        ("#event number", "is no attribute path"),
        ("#number", "is no attribute path: it begins with #number"),
        ("#", "begins with #"),
        ("@bean.id", "is no attribute path"),
        ("T(java.lang.Runtime).exec()", "is no attribute path"),
        ("with_more(3)", "cannot be read from '\\(3\\)' on"),
        ("method()()", "is no attribute path"),
        ("number + 1", "is no attribute path"),
        ("7", "names '7'"),
        ("customer.__class__", "names '__class__'"),
        ("__class__.mro()", "names '__class__'"),
        ("customer.__init__()", "names '__init__'"),
        ("''", "is no attribute path"),
        ("with_more()", "'with_more' of Order takes arguments, so 'with_more\\(\\)' cannot call it"),
        ("later()", "'later' of Order is async"),
        ("mehtod()", "Order has no attribute 'mehtod'"),
        ("customer.rfe()", "Customer has no attribute 'rfe'"),
        ("region()", "'region' of Order is no method"),
        ("customer['id']", "Customer has no keys"),
        ("line.ietms", "Line has no attribute 'ietms'.*it has items, customer"),
        ("line['ietms']", "Line has no attribute 'ietms'"),
        (7, "of Order is 7"),
        (later, "of Order is later"),
        (lambda: 1, "of Order is .*<lambda>"),
        (lambda one, two: 1, "of Order is .*<lambda>"),
    ],
)
def test_a_wrong_path_or_function_is_refused_at_the_class(getter: Any, said: str) -> None:
    """TC-437: before there is an object."""
    for marks in ({"key": getter}, {"context": {"name": getter}}):
        with pytest.raises(InvalidPayloadType, match=rf"(?s){said}.*Fix: "):
            marked(**marks)


def test_a_wrong_path_is_refused_before_the_class_is_a_dataclass_too() -> None:
    with pytest.raises(InvalidPayloadType, match="Order has no attribute 'nubmer', as in 'nubmer'; it has number"):

        @dataclasses.dataclass
        @outbox_event(key="nubmer")
        class Order:
            number: int


@pytest.mark.parametrize(
    ("marks", "said"),
    [
        ({"version": 0}, "the version of Order is 0"),
        ({"version": True}, "the version of Order is True"),
        ({"version": "2"}, "the version of Order is '2'"),
        ({"serializer": JsonSerializer}, "has no content_type, encode"),
        ({"serializer": object()}, "has no content_type, encode"),
        ({"context": 7}, "the context of Order is 7"),
        ({"context": ["number"]}, "the context of Order is"),
        ({"context": {"": "number"}}, "the context of Order has the name ''"),
        ({"context": {7: "number"}}, "the context of Order has the name 7"),
    ],
)
def test_other_marks_are_checked_at_the_class_too(marks: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidPayloadType, match=rf"(?s){said}.*Fix: "):
        marked(**marks)


@pytest.mark.parametrize("type", ["", "N" * 129, 7])
def test_a_type_must_be_a_name(type: Any) -> None:
    with pytest.raises(InvalidName, match="event_type"):
        marked(type=type)


def test_only_classes_are_marked() -> None:
    for kind in (Customer(1), lambda: None):
        with pytest.raises(InvalidPayloadType, match="which is no class"):
            outbox_event(key="id")(kind)  # type: ignore[type-var]
    with pytest.raises(InvalidPayloadType, match=r"int takes no marks"):
        outbox_event(type="number")(int)


def test_a_typed_dict_takes_type_and_version_only() -> None:
    class Order(TypedDict):
        number: int

    assert marks_of(outbox_event(type="t", version=2)(Order)) == Marks(type="t", version=2)
    with pytest.raises(InvalidPayloadType, match=r"Order is a TypedDict.* key, serializer would never be used"):
        outbox_event(key="number", serializer=JsonSerializer())(Order)
