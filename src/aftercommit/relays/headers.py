"""Texts that go out beside a body: what a line of a header cannot carry is encoded, or refused."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter

#: The characters of a name, as HTTP has them.
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")

#: What CloudEvents leave as they are: printable ASCII but the space, the quote and the percent sign.
_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


def percent_encoded(value: str) -> str:
    """The value of an attribute of a CloudEvent in a header, as the HTTP binding says it."""
    return quote(value, safe=_SAFE)


def plain_header(name: str, value: str) -> str:
    """A header of the user's, as it is. One that would become something else on the way is refused: encoded, it would
    mean something else to whoever reads it."""
    if not _NAME.fullmatch(name):
        raise DeadLetter(f"the header name {shown(name)} has characters that a header cannot carry: rename it")
    if value != value.strip() or not all(each.isprintable() for each in value):
        raise DeadLetter(f"the header {name} has a line break, or white space at an end, which a header cannot carry")
    return value


def place_of(url: str, port: int) -> str:
    """Host and port of an address; the login stays out."""
    parts = urlsplit(url if "://" in url else f"//{url}")
    return f"{parts.hostname or 'localhost'}:{parts.port or port}"
