"""Headers as the table keeps them: JSON, or a format of the user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, runtime_checkable

from aftercommit.errors import InvalidHeaders, InvalidOption, UndecodableRow
from aftercommit.events.codec import decode_headers, encode_headers
from aftercommit.events.redact import error_text


@runtime_checkable
class HeaderCodec(Protocol):
    """Turns headers into the text of their column and back. Asked only for rows that have headers."""

    def encode(self, headers: Mapping[str, str], /) -> str: ...

    def decode(self, text: str, /) -> Mapping[str, str]: ...


class Headers(NamedTuple):
    """How a store writes and reads them."""

    encode: Callable[[Mapping[str, str]], str | None]
    decode: Callable[[str], dict[str, str]]


JSON_HEADERS: Final = Headers(encode_headers, decode_headers)


def headers_by(codec: HeaderCodec) -> Headers:
    """What a codec raises, or gives that makes no sense, refuses the write; on the way back the row is dead."""
    missing = [name for name in ("encode", "decode") if not callable(getattr(codec, name, None))]
    if missing or isinstance(codec, type):
        raise InvalidOption(
            f"header_codec is {codec!r}, which has no {', '.join(missing) or 'instance'}",
            fix="pass an object with encode(headers) and decode(text)",
        )

    def encode(headers: Mapping[str, str]) -> str:
        try:
            text: object = codec.encode(dict(headers))
        except Exception as error:
            raise InvalidHeaders(
                f"the header_codec cannot encode the headers: {error_text(error)}",
                fix="mend the codec, or write headers that it takes",
            ) from error
        if not isinstance(text, str) or not text:
            raise InvalidHeaders(
                f"the header_codec gave {type(text).__name__} for headers, and no text",
                fix="let encode(headers) return a text that is not empty",
            )
        return text

    def decode(text: str) -> dict[str, str]:
        try:
            headers = dict(codec.decode(text))
        except Exception as error:
            raise _undecodable(error_text(error)) from error
        if not all(isinstance(each, str) for pair in headers.items() for each in pair):
            raise _undecodable("it gave something else than strings by strings")
        return headers

    return Headers(encode, decode)


def _undecodable(why: str) -> UndecodableRow:
    return UndecodableRow(
        f"the header_codec cannot read the stored headers: {why}",
        fix="mend the codec or the row's headers column, then replay the dead event",
    )
