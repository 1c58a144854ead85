"""The classes that one outbox knows as payloads: their names, their formats and their versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from aftercommit.errors import (
    InvalidName,
    InvalidOption,
    InvalidPayloadType,
    OutboxError,
    UndecodablePayload,
    UnroutableEvent,
)
from aftercommit.events.annotations import (
    classes,
    event_type_of,
    family,
    fault_of,
    full_name,
    is_plain_data,
    named,
    plain,
)
from aftercommit.events.classes import Marks, checked_serializer, marks_of
from aftercommit.events.codec import JsonSerializer, MsgpackSerializer, Payload, Serializer, encoder, reason_of
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.groups import encoder_of_many
from aftercommit.events.names import described
from aftercommit.events.upcast import Upcaster, Upcasters

F = TypeVar("F", bound=Upcaster)


_UNMARKED: Final = Marks()

#: A named tuple without its own, slower way to be made: each write makes one.
_tuple: Final = tuple.__new__

#: Event types whose classes are remembered. Somebody may make up names of events.
_KEPT_AT_MOST: Final = 10_000

#: How msgspec and pydantic call a field that is not there.
_MISSING: Final = ("missing required field", "Field required")


class Encoded(NamedTuple):
    """An object as it is to be written."""

    event_type: str
    payload: Payload
    content_type: str
    payload_version: int
    #: As its class declares it, not yet checked; None when it declares none.
    key: Any
    context: Mapping[str, str] | None


class Kind(NamedTuple):
    """What is looked up once for a class."""

    name: str
    marks: Marks
    serializer: Serializer
    encode: Callable[[Any], Payload]
    #: Many of them, where they go together; an error need not say whose it is.
    encode_all: Callable[[Sequence[Any]], list[Payload]]


class PayloadTypes:
    """What one outbox knows of payload classes.

    `serializer` writes; rows are read by their content type, by the class's own serializer, one named here, JSON or
    MessagePack. To change the format of an outbox, put the new serializer before the old one: `[New(), Old()]`.
    """

    def __init__(self, serializer: Serializer | Sequence[Serializer] | None = None) -> None:
        chosen = _chosen(serializer)
        self._default = chosen[0]
        self._encode = encoder(self._default)
        known: list[Serializer] = [MsgpackSerializer(), JsonSerializer(), *reversed(chosen)]
        self._readers = {_media_type(each.content_type): each for each in known}
        self._kinds: dict[type, Kind] = {}
        self._names: dict[str, type] = {}
        #: What is known of the classes that own their names.
        self._named: dict[type, Kind] = {}
        #: The versions of what is written by name: those of the classes known by their names. Else it is 1.
        self.versions: dict[str, int] = {}
        #: What handlers and fallbacks take, in the order in which it was declared.
        self._declared: dict[Any, None] = {}
        #: The classes that it has for event types; Any, where it has none.
        self._declared_for: dict[str, Any] = {}
        self._found: dict[tuple[Any, str], Any] = {}
        #: How to decode what is written now; a delivery asks for nothing else most of the time.
        self._ready: dict[tuple[Any, str, str, int], Callable[[Payload], Any]] = {}
        self._upcasters = Upcasters()

    # ------------------------------------------------------------ writing

    def name_of(self, kind: type) -> str:
        """The event type of a class: its name, or what @outbox_event says. Two classes of one name are refused."""
        return self._claimed(kind).name

    def kind_of(self, kind: type) -> Kind:
        """What is known of a class whose objects are written under its name."""
        return self._named.get(kind) or self._claimed(kind)

    def encode(self, value: object) -> Encoded:
        """An object of a class of its own, with all that its class says of it."""
        kind = self.kind_of(type(value))
        return _encoded(kind.name, value, kind)

    def encode_as(self, event_type: str, value: object) -> Encoded:
        """Anything under a name that was given: plain data, or an object with what else its class is marked with."""
        if type(value).__module__ != "builtins" and (kind := self._known(type(value))).marks is not _UNMARKED:
            return _encoded(event_type, value, kind)
        payload, version = self._encode(value), self.versions.get(event_type, 1)
        return _tuple(Encoded, (event_type, payload, self._default.content_type, version, None, None))

    # ------------------------------------------------------------ routes

    def names_for(self, annotation: Any) -> frozenset[str]:
        """The event types that a handler with this annotation takes, as far as they are known now: those of the class,
        of each class of a union, and of their subclasses. Refuses what cannot be decoded."""
        for kind in classes(annotation):
            self._refuse_undecodable(kind)
            self._claimed(plain(kind))
        if annotation not in self._declared:
            self._declared[annotation] = None
            self._declared_for = {}
        return frozenset(event_type_of(plain(kind)) for kind in family(annotation))

    def matches(self, annotation: Any, event_type: str) -> bool:
        """Whether a handler with this annotation takes the event type; asked anew, because subclasses come later."""
        return (annotation, event_type) in self._found or bool(named(annotation, event_type))

    # ------------------------------------------------------------ reading

    def decode(self, event: EventEnvelope, wanted: Any) -> Any:
        """The payload as an object of the wanted class; of a union or a base class, of the one that the event names.
        Wanted as `dict`, it is the plain data as it was written, of whatever version. Wanted as `object`, it is of the
        class that the handlers of this outbox have for the event, else plain data, else the text or bytes themselves.

        Raises UndecodablePayload; UnroutableEvent for a version that is newer than the class, which another process
        may know.
        """
        ready = self._ready.get(_question(event, wanted))
        try:
            return self._decoded(event, wanted) if ready is None else ready(event.payload)
        except UnroutableEvent:
            raise
        except OutboxError as error:
            raise _undecodable(event, wanted, error.message, error.fix) from error
        except Exception as error:
            reason = reason_of(error)
            is_missing = any(words in reason for words in _MISSING)
            cure = "give the field a default" if is_missing else "let the annotation take what was written"
            raise _undecodable(event, wanted, reason, f"{cure} or add an upcaster, then replay the event") from error

    def upcaster(self, kind: type, from_version: int, step: F) -> F:
        """Add the step that leads the class's plain data from this version to the next."""
        self._upcasters.add(kind, from_version, self._known(kind).marks.version, step)
        return step

    def _decoded(self, event: EventEnvelope, wanted: Any) -> Any:
        if wanted is object:
            wanted = self._declared_class(event.event_type)
            if wanted is Any and _media_type(event.content_type) not in self._readers:
                return event.payload
        if is_plain_data(wanted):
            return self._reader(event.content_type, self._default).decode(event.payload, wanted)
        kind = self._class_for(wanted, event.event_type) or _only(wanted, event)
        known = self._known(plain(kind))
        serializer = self._reader(event.content_type, known.serializer)
        # Versions are those of the name, not of a class without marks that a handler routed by another name uses.
        has_versions = known.marks is not _UNMARKED or known.name == event.event_type
        if has_versions and event.payload_version != known.marks.version:
            data = self._upcast(event, plain(kind), known.marks.version, serializer)
            return serializer.decode(serializer.encode(data), kind)
        # What else a row may say of itself is not worth keeping.
        if (event.content_type, event.payload_version) == (serializer.content_type, known.marks.version):
            self._ready[_question(event, wanted)] = lambda payload: serializer.decode(payload, kind)
        return serializer.decode(event.payload, kind)

    def _upcast(self, event: EventEnvelope, kind: type, version: int, serializer: Serializer) -> Any:
        if event.payload_version > version:
            raise UnroutableEvent(
                f"{event.event_type} {event.event_id} is of version {event.payload_version}, and this process knows "
                f"{described(kind)} only up to version {version}",
                fix="deploy the release that wrote it here too, then replay the event; see unroutable_grace",
            )
        data = serializer.decode(event.payload, dict)
        return self._upcasters.apply(kind, data, from_version=event.payload_version, to_version=version)

    def _reader(self, content_type: str, own: Serializer) -> Serializer:
        wanted = _media_type(content_type)
        if _media_type(own.content_type) == wanted:
            return own
        if wanted not in self._readers:
            raise UndecodablePayload(
                f"no serializer reads {content_type}; known are {', '.join(sorted(self._readers))}",
                fix="pass serializer=[…] with one for it to the outbox, then replay the event",
            )
        return self._readers[wanted]

    # ------------------------------------------------------------ knowing

    def _known(self, kind: type) -> Kind:
        if kind not in self._kinds:
            marks = marks_of(kind) or _UNMARKED
            serializer = marks.serializer or self._default
            encode = encoder(serializer, kind)
            known = Kind(event_type_of(kind), marks, serializer, encode, encoder_of_many(encode))
            self._kinds.setdefault(kind, known)
        return self._kinds[kind]

    def _claimed(self, kind: type) -> Kind:
        """What is known of a class, once its name is its own."""
        known = self._known(kind)
        other = self._names.setdefault(known.name, kind)
        if other is not kind:
            raise InvalidName(
                f"two classes are named {known.name}: {full_name(other)} and {full_name(kind)}; in the table they "
                "would be one type",
                fix='rename one, or name the type: @outbox_event(type="…"), write("OtherName", payload)',
            )
        self.versions[known.name] = known.marks.version
        self._named[kind] = known
        return known

    def _class_for(self, annotation: Any, event_type: str) -> Any:
        """The class that the annotation has for the event type, None when it has none."""
        found = self._found.get((annotation, event_type))
        if found is None:
            candidates, known = named(annotation, event_type), self._names.get(event_type)
            if not candidates:
                return None
            chosen = candidates if len(candidates) == 1 else [each for each in candidates if plain(each) is known]
            if not chosen:
                names = ", ".join(full_name(plain(each)) for each in candidates)
                raise InvalidName(
                    f"several classes are named {event_type}: {names}",
                    fix='rename all but one, or name their types: @outbox_event(type="…")',
                )
            found = self._found[annotation, event_type] = chosen[0]
        return found

    def _declared_class(self, event_type: str) -> Any:
        """The class that handlers or fallbacks declare for an event type, and not one that was merely written here: the
        same event must look the same wherever and whenever it is delivered. Any, when there is none."""
        # One and the same dictionary: what is found while a handler is added must not outlive the addition.
        known = self._declared_for
        if event_type not in known:
            found = (self._class_for(annotation, event_type) for annotation in tuple(self._declared))
            kind = next((each for each in found if each is not None), Any)
            if len(known) >= _KEPT_AT_MOST:
                known.clear()
            known[event_type] = kind
            return kind
        return known.get(event_type, Any)

    def _refuse_undecodable(self, kind: Any) -> None:
        own = self._known(plain(kind)).serializer
        fault = fault_of(kind) if isinstance(own, JsonSerializer | MsgpackSerializer) else None
        if fault is not None:
            raise InvalidPayloadType(
                f"no payload can be decoded into {described(kind)}: {fault}",
                fix="use a dataclass, a msgspec Struct, a TypedDict, an attrs class or a pydantic model",
            )


def _encoded(event_type: str, value: object, kind: Kind) -> Encoded:
    marks = kind.marks
    return Encoded(
        event_type,
        kind.encode(value),
        kind.serializer.content_type,
        marks.version,
        None if marks.key is None else marks.key(value),
        None if marks.context is None else marks.context(value),
    )


def _chosen(serializer: Any) -> list[Serializer]:
    """The serializers of an outbox; the first one writes."""
    given = (
        serializer if isinstance(serializer, list | tuple) else [JsonSerializer() if serializer is None else serializer]
    )
    try:
        return [checked_serializer(each) for each in given] or [JsonSerializer()]
    except InvalidPayloadType as error:
        raise InvalidOption(error.message, fix=error.fix) from error


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _question(event: EventEnvelope, wanted: Any) -> tuple[Any, str, str, int]:
    return wanted, event.event_type, event.content_type, event.payload_version


def _only(wanted: Any, event: EventEnvelope) -> Any:
    """The class of a handler that is routed by name."""
    kinds = list(classes(wanted))
    if len(kinds) != 1:
        raise UndecodablePayload(
            f"{event.event_type} names none of them",
            fix="name the class of this event type in the handler's annotation, then replay the event",
        )
    return kinds[0]


def _undecodable(event: EventEnvelope, wanted: Any, reason: str, fix: str) -> UndecodablePayload:
    return UndecodablePayload(
        f"{event.event_type} {event.event_id} (version {event.payload_version}, {event.content_type}) is no "
        f"{described(wanted)}: {reason}",
        fix=fix,
    )
