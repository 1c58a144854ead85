"""Texts that go out beside a body as lines of a header, which cannot carry everything."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

from aftercommit.errors import InvalidOption
from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter

#: The characters of a name, as HTTP has them.
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

#: What CloudEvents leave as they are: printable ASCII but the space, the quote and the percent sign.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def percent_encoded(value: str) -> str:
    """The value of an attribute of a CloudEvent in a header, as the HTTP binding says it."""
    return quote(value, safe=_SAFE)


def header_value(value: str) -> str:
    """A header of the user's: as it is where a line of ASCII can carry it, else percent-encoded like an attribute."""
    is_plain = value.isascii() and value.isprintable() and value == value.strip()
    return value if is_plain else percent_encoded(value)


def checked_name(name: str) -> str:
    """Nobody would read an encoded name, so one that is no name in HTTP is refused."""
    if not _NAME.fullmatch(name):
        raise DeadLetter(f"the header name {shown(name)} has characters that a header cannot carry: rename it")
    return name


def place_of(url: str, port: int) -> str:
    """Host and port of an address; the login stays out."""
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        return f"{parts.hostname or 'localhost'}:{parts.port or port}"
    except ValueError:  # whose text may be a part of a password
        raise InvalidOption("the address cannot be read", fix="percent-encode / @ : in its login") from None
