"""What is done with an event: its JSON is parsed, by the parser that the outbox uses itself, on either side."""

from __future__ import annotations

from typing import Any, Final

import msgspec

#: By hand: takes the text.
parse: Final = msgspec.json.Decoder().decode


async def parse_async(text: Any) -> None:
    parse(text)


def handle(event: Any) -> None:
    """The outbox's: takes the envelope."""
    parse(event.payload_json)


async def handle_async(event: Any) -> None:
    parse(event.payload_json)
