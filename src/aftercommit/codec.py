"""Payloads and headers to text and back: JSON by msgspec, checked before a transaction is touched."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from aftercommit.errors import InvalidPayload, UndecodableRow

#: A payload as it is stored and delivered: JSON text, or bytes.
Payload = str | bytes

_headers = msgspec.json.Decoder(dict[str, str | None])
_raw = msgspec.json.Decoder(msgspec.Raw)


def encode_payload(value: object) -> Payload:
    """JSON text verbatim, bytes as they are, anything else encoded as JSON."""
    if isinstance(value, str):
        return checked_json(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if value is None:
        raise InvalidPayload("the payload is None", fix="pass a payload; JSON null is the text 'null'")
    return encode_json(value)


def checked_json(text: str) -> str:
    """The text itself, if it is well-formed JSON that UTF-8 can carry."""
    try:
        _raw.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidPayload(
            f"the payload text is not valid JSON ({error}): {_excerpt(text)}",
            fix="pass valid JSON text, or pass the object itself and let write() encode it",
        ) from error
    return text


def encode_json(value: object) -> str:
    """JSON text of a value; refuses NaN, infinity and what JSON cannot carry, with the path of the field."""
    try:
        text = msgspec.json.encode(value).decode()
    except Exception as error:
        raise InvalidPayload(
            f"the payload of type {type(value).__name__} cannot be encoded as JSON: {_culprit(value) or error}",
            fix="use types that JSON has, dataclasses or msgspec Structs, or convert the field first",
        ) from error
    # msgspec writes NaN and infinity as null; without a null in the text there was none.
    if "null" in text and (path := _not_finite(value)):
        raise InvalidPayload(f"{path} has no form in JSON", fix="replace NaN and infinity by a number or None")
    return text


def encode_headers(headers: Mapping[str, str]) -> str | None:
    """JSON text in insertion order; None when there are no headers."""
    return msgspec.json.encode(dict(headers)).decode() if headers else None


def decode_headers(text: str | None) -> dict[str, str]:
    """The headers of a stored row; null values are dropped, anything but strings is undecodable."""
    if not text:
        return {}
    try:
        return {name: value for name, value in _headers.decode(text).items() if value is not None}
    except (msgspec.DecodeError, UnicodeEncodeError, TypeError) as error:
        raise UndecodableRow(
            f"the stored headers are not a JSON object of strings ({error}): {_excerpt(str(text))}",
            fix="mend the row's headers column, then replay the dead event",
        ) from error


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _culprit(value: object) -> str | None:
    """Path and type of the first part that msgspec cannot encode."""
    for path, part in _walk(value, "payload"):
        if _children(part) is None and not _encodes(part):
            return f"{path} is a {type(part).__name__}"
    return None


def _not_finite(value: object) -> str | None:
    """Path of the first NaN or infinity."""
    for path, part in _walk(value, "payload"):
        if isinstance(part, float) and not math.isfinite(part):
            return f"{path} is {part!r}, which"
    return None


def _walk(value: object, path: str, depth: int = 0) -> Iterator[tuple[str, object]]:
    yield path, value
    if depth < 64:
        for name, child in _children(value) or ():
            yield from _walk(child, f"{path}{name}", depth + 1)


def _children(value: Any) -> list[tuple[str, object]] | None:
    """The named parts of a container, None for a leaf."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", child) for key, child in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"[{index}]", child) for index, child in enumerate(value)]
    if isinstance(value, msgspec.Struct):
        return [(f".{name}", getattr(value, name)) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]
    return None


def _encodes(value: object) -> bool:
    try:
        msgspec.json.encode(value)
    except Exception:
        return False
    return True
