"""Payloads and headers to text and back, checked before a transaction is touched: JSON and MessagePack by msgspec, and
the seam for other formats."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from aftercommit.errors import InvalidPayload, OutboxError, UndecodableRow
from aftercommit.events.names import plain
from aftercommit.events.redact import error_text

#: A payload as it is stored and delivered: JSON text, or bytes.
Payload = str | bytes

_headers = msgspec.json.Decoder(dict[str, str | None])
_raw = msgspec.json.Decoder(msgspec.Raw)

#: Raises for bytes that are no JSON, without saying much; see `checked_json`.
parse_json: Final = _raw.decode

#: Most of what a payload has; the other kinds are told apart by slower questions.
_LEAVES = frozenset({str, int, float, bool, type(None)})


def checked_json(text: str) -> str:
    """The text itself, if it is well-formed JSON that UTF-8 can carry."""
    try:
        _raw.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidPayload(
            f"the payload text is not valid JSON ({error}): {_excerpt(text)}",
            fix="pass valid JSON text, or pass the object itself and let write() encode it",
        ) from error
    return plain(text)


def encode_json(value: object) -> str:
    """JSON text of a value; refuses NaN, infinity and what JSON cannot carry, with the path of the field."""
    try:
        encoded = _json.encode(value)
        _raw.decode(encoded)  # Raw parts and models are put in as they are
        text = encoded.decode()
    except Exception as error:
        raise refused(value, error, "JSON", _json.encode) from error
    # msgspec writes NaN and infinity as null; without a null in the text there was none.
    for path, part in _walk(value) if "null" in text else ():
        if isinstance(part, float) and not math.isfinite(part):
            raise InvalidPayload(
                f"{path} is {part!r}, which has no form in JSON", fix="replace NaN and infinity by a number or None"
            )
    return text


def refused(value: object, error: Exception, form: str, encode: Callable[[object], object]) -> InvalidPayload:
    """What to say of a payload that a format cannot carry."""
    return InvalidPayload(
        f"the payload of type {type(value).__name__} cannot be encoded as {form}: {_culprit(value, encode) or error}",
        fix=f"use types that {form} has, dataclasses or msgspec Structs, or convert the field first",
    )


def dump_model(value: Any) -> bytes:
    """The JSON of a pydantic model, as the model itself reads it back."""
    if not hasattr(type(value), "model_dump_json"):
        raise NotImplementedError(f"objects of type {type(value).__name__} cannot be encoded")
    encoded: bytes = value.model_dump_json(round_trip=True).encode()
    return encoded


#: Models of pydantic are asked themselves, wherever in a payload they are; pydantic is not imported for that.
_json = msgspec.json.Encoder(enc_hook=lambda value: msgspec.Raw(dump_model(value)))

#: As JSON, whatever there is in it: what does not fit, or is no number, is not refused.
encode_object: Final = _json.encode


def encode_headers(headers: Mapping[str, str]) -> str | None:
    """JSON text in insertion order; None when there are no headers."""
    return msgspec.json.encode(dict(headers)).decode() if headers else None


def decode_headers(text: str | None) -> dict[str, str]:
    """The headers of a stored row; null values are dropped, anything but strings is undecodable."""
    if not text:
        return {}
    try:
        return {name: value for name, value in _headers.decode(text).items() if value is not None}
    except (msgspec.DecodeError, ValueError, TypeError) as error:  # ValueError: what is no Unicode, either way
        raise UndecodableRow(
            f"the stored headers are not a JSON object of strings ({error}): {_excerpt(str(text))}",
            fix="mend the row's headers column, then replay the dead event",
        ) from error


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _culprit(value: object, encode: Callable[[object], object]) -> str | None:
    """Path and type of the first part that cannot be encoded."""
    for path, part in _walk(value):
        if isinstance(part, Mapping):
            for key in part:
                if not isinstance(key, str) and not _encodes({key: None}, encode):
                    return f"{path} has keys of type {type(key).__name__}"
        elif _children(part) is None and not _encodes(part, encode):
            return f"{path} is a {type(part).__name__}{' with a lone surrogate' if isinstance(part, str) else ''}"
    return None


def _walk(value: object) -> Iterator[tuple[str, object]]:
    """Every part with its path, in order, each container once: it may hold itself."""
    waiting, seen = [("payload", value)], dict[int, object]()
    while waiting:
        path, part = waiting.pop()
        yield path, part
        children = _children(part)
        if children and id(part) not in seen:
            seen[id(part)] = part  # kept, so that its id stays its own
            waiting.extend((f"{path}{name}", child) for name, child in reversed(children))


def _children(value: Any) -> list[tuple[str, object]] | None:
    """The named parts of a container, None for a leaf."""
    if type(value) in _LEAVES:
        return None
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return _fields(value, value.__struct_fields__)
    if isinstance(value, type):
        return None
    if dataclasses.is_dataclass(value):
        return _fields(value, [field.name for field in dataclasses.fields(value)])
    if hasattr(value, "__attrs_attrs__"):
        return _fields(value, [attribute.name for attribute in value.__attrs_attrs__])
    if hasattr(type(value), "model_dump_json"):
        return _fields(value, [*type(value).model_fields, *(value.model_extra or ())])
    if isinstance(value, Enum):
        return _fields(value, ["value"])
    return None


def _fields(value: object, names: Iterable[str]) -> list[tuple[str, object]]:
    return [(f".{name}", getattr(value, name, None)) for name in names]


def _encodes(value: object, encode: Callable[[object], object]) -> bool:
    try:
        encode(value)
    except Exception:
        return False
    return True


@runtime_checkable
class Serializer(Protocol):
    """A format of payloads. Rows are decoded by the content type that they were stored with.

    `encode` raises for what the format cannot carry. `decode` raises for what does not fit the class; asked for `dict`
    it gives plain data, which only upcasters need. Both are called from any thread.
    """

    @property
    def content_type(self) -> str:
        """As in HTTP, such as "application/x-protobuf"."""

    def encode(self, value: Any, /) -> Payload:
        """JSON text as `str`; any other format as `bytes`."""

    def decode(self, payload: Payload, kind: type, /) -> Any:
        """An object of the class."""


class JsonSerializer:
    """JSON by msgspec: exact numbers, strict types. Dataclasses, msgspec Structs, TypedDicts and attrs classes;
    pydantic models by their own rules."""

    content_type = "application/json"

    def __init__(self) -> None:
        self._decoders: dict[Any, Callable[[Payload], Any]] = {dict: msgspec.json.Decoder().decode}

    def encode(self, value: Any, /) -> str:
        return encode_json(value)

    def decode(self, payload: Payload, kind: type, /) -> Any:
        decode = self._decoders.get(kind) or self._decoders.setdefault(kind, _json_decoder(kind))
        return decode(payload)


class MsgpackSerializer:
    """MessagePack by msgspec: smaller than JSON, with bytes and times of its own; integers have 64 bits."""

    content_type = "application/msgpack"

    def __init__(self) -> None:
        self._decoders: dict[Any, Callable[[Any], Any]] = {dict: msgspec.msgpack.Decoder().decode}

    def encode(self, value: Any, /) -> bytes:
        try:
            return _msgpack.encode(value)
        except Exception as error:
            raise refused(value, error, "MessagePack", _msgpack.encode) from error

    def decode(self, payload: Payload, kind: type, /) -> Any:
        decode = self._decoders.get(kind) or self._decoders.setdefault(kind, _msgpack_decoder(kind))
        return decode(payload)


def encoder(serializer: Serializer, kind: type | None = None) -> Callable[[Any], Payload]:
    """Its encode(), with what a user's own one gives checked. Objects of a class whose annotations tell the codec what
    fits are checked against them: nobody looked when the object was made, and it could not be delivered."""
    if type(serializer) not in (JsonSerializer, MsgpackSerializer):
        return lambda value: _encoded(serializer, value)
    encode = encode_json if type(serializer) is JsonSerializer else serializer.encode
    if kind is None or not (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct)):
        return encode
    try:
        decode = (_json_decoder if type(serializer) is JsonSerializer else _msgpack_decoder)(kind)
    except Exception:  # annotations that msgspec does not know, or that lead nowhere at run time
        return encode
    return partial(fitting_json, decode) if encode is encode_json else partial(_fitting, encode, decode)


def fitting_json(decode: Callable[[Payload], Any], value: Any) -> str:
    """What can be decoded is JSON, and need not be read once more to see that."""
    try:
        encoded = _json.encode(value)
        decode(encoded)
        text = encoded.decode()
    except Exception:
        text = "null"
    return str(_fitting(encode_json, decode, value)) if "null" in text else text


def _fitting(encode: Callable[[Any], Payload], decode: Callable[[Payload], Any], value: Any) -> Payload:
    payload = encode(value)
    try:
        decode(payload)
    except Exception as error:
        raise InvalidPayload(
            f"the values of this {type(value).__name__} do not fit its annotations: {reason_of(error)}",
            fix="pass values of the annotated types, or annotate the field with what it takes",
        ) from error
    return payload


def _encoded(serializer: Serializer, value: Any) -> Payload:
    try:
        payload: object = serializer.encode(value)
    except OutboxError:
        raise
    except Exception as error:
        raise InvalidPayload(
            f"the payload of type {type(value).__name__} cannot be encoded as {serializer.content_type}: "
            f"{error_text(error)}",
            fix=f"pass what {type(serializer).__name__} can carry",
        ) from error
    if isinstance(payload, str):
        return checked_json(payload)
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    raise InvalidPayload(
        f"{type(serializer).__name__}.encode() gave a {type(payload).__name__}", fix="return JSON text or bytes"
    )


def _json_decoder(kind: Any) -> Callable[[Payload], Any]:
    if is_model(kind):
        return partial(_load_json, kind)
    return msgspec.json.Decoder(kind, dec_hook=_load).decode


def _msgpack_decoder(kind: Any) -> Callable[[Any], Any]:
    if is_model(kind):
        return lambda payload: _load(kind, msgspec.msgpack.decode(payload))
    return msgspec.msgpack.Decoder(kind, dec_hook=_load).decode


def is_model(kind: object) -> bool:
    """Whether it is a class of pydantic's, told without importing pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json")


def _load(kind: Any, data: Any) -> Any:
    """What msgspec does not know: models inside of other payloads."""
    if not is_model(kind):
        raise NotImplementedError(f"{kind!r} has no fields that could be decoded")
    # As JSON, so that a model that is strict takes times and ids as it wrote them.
    return _load_json(kind, msgspec.json.encode(data))


def _load_json(kind: Any, payload: Payload) -> Any:
    # A model writes its names, or its aliases if it is set so; it may have been written elsewhere, too.
    return kind.model_validate_json(payload, by_alias=True, by_name=True)


_msgpack = msgspec.msgpack.Encoder(enc_hook=lambda value: msgspec.json.decode(dump_model(value)))


def reason_of(error: Exception) -> str:
    """What a decoder says, with the paths of fields and without their values."""
    if not hasattr(error, "errors") or not hasattr(error, "error_count"):
        return str(error) or type(error).__name__
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{fault['msg']} - at `{_path(fault['loc'])}`" for fault in faults[:5])


def _path(steps: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
