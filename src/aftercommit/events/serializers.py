"""Formats of payloads: JSON, MessagePack, and the seam for others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec

from aftercommit.errors import InvalidPayload, OutboxError
from aftercommit.events.codec import Payload, checked_json, dump_model, encode_json, refused
from aftercommit.events.redact import error_text


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


def encoder(serializer: Serializer) -> Callable[[Any], Payload]:
    """Its encode(), with what a user's own one gives checked."""
    if type(serializer) in (JsonSerializer, MsgpackSerializer):
        return serializer.encode
    return lambda value: _encoded(serializer, value)


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


def _dump(value: Any) -> Any:
    return msgspec.json.decode(dump_model(value))


_msgpack = msgspec.msgpack.Encoder(enc_hook=_dump)


def reason_of(error: Exception) -> str:
    """What a decoder says, with the paths of fields and without their values."""
    if not hasattr(error, "errors") or not hasattr(error, "error_count"):
        return str(error) or type(error).__name__
    faults = error.errors(include_input=False, include_url=False, include_context=False)
    return "; ".join(f"{fault['msg']} - at `{_path(fault['loc'])}`" for fault in faults[:5])


def _path(steps: tuple[str | int, ...]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
