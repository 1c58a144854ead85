"""Payloads and headers to text and back: JSON by msgspec, checked before a transaction is touched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final

import msgspec

from aftercommit.errors import InvalidPayload, UndecodableRow
from aftercommit.events.names import plain

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
    if "null" in text and (path := _not_finite(value)):
        raise InvalidPayload(f"{path} has no form in JSON", fix="replace NaN and infinity by a number or None")
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


def _not_finite(value: object) -> str | None:
    """Path of the first NaN or infinity."""
    for path, part in _walk(value):
        if isinstance(part, float) and not math.isfinite(part):
            return f"{path} is {part!r}, which"
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
