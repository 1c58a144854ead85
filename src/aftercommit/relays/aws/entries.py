"""Entries of a batch: messages within the limits of SNS and SQS, and chunks of entries within those of a request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from aftercommit.events.outcome import DeadLetter
from aftercommit.relays.cloudevents import STRUCTURED_TYPE, structured
from aftercommit.relays.message import Message

#: Of one request, and of the attributes of one message.
MOST_ENTRIES: Final = 10
MOST_ATTRIBUTES: Final = 10

#: Bytes of one request, attributes included: what every queue and topic takes. A message that is larger goes alone.
MOST_BYTES: Final = 262_144

#: What both services take for text: the characters of XML 1.0.
_TEXT: Final = re.compile(r"[\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]+")

_NAME: Final = re.compile(r"(?!(?i:aws|amazon)\.)[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_GROUP: Final = re.compile(r"[\x21-\x7e]{1,128}")

_FIX: Final = "shape it: outbox.relay(…, message=lambda event: Outgoing(body=…, headers={…}))"


@dataclass(frozen=True, slots=True)
class Entry:
    """One message of a batch. `number` is its place in the call."""

    number: int
    body: str
    attributes: Mapping[str, str]
    #: For FIFO: who it is in order with, and what tells repetitions apart.
    group: str | None
    id: str

    @property
    def size(self) -> int:
        named = sum(len(name) + len("String") + len(value.encode()) for name, value in self.attributes.items())
        return len(self.body.encode()) + named

    def words(self, body_name: str) -> dict[str, Any]:
        """As both services say it, but for the name of the body."""
        words: dict[str, Any] = {
            "Id": str(self.number),
            body_name: self.body,
            "MessageAttributes": {
                name: {"DataType": "String", "StringValue": value} for name, value in self.attributes.items()
            },
        }
        if self.group is not None:
            words |= {"MessageGroupId": self.group, "MessageDeduplicationId": self.id}
        return words


def entry_of(number: int, message: Message, *, is_fifo: bool) -> Entry:
    """A CloudEvent whose attributes are too many, or whose body is no text, is sent as one JSON text instead.

    Raises DeadLetter for what cannot be sent at all.
    """
    headers = _headers_of(message)
    attributes = {"content-type": message.content_type}
    attributes |= {f"ce_{name}": value for name, value in message.attributes.items()}
    body = _text_of(message.body)
    if message.attributes and (body is None or len({**headers, **attributes}) > MOST_ATTRIBUTES):
        attributes = {"content-type": STRUCTURED_TYPE}
        body = _text_of(structured(message.attributes, message.body, message.content_type))
    if body is None:
        raise DeadLetter("the body is empty, or has bytes that are no text, which SNS and SQS do not take", fix=_FIX)
    attributes = {**headers, **attributes}
    if len(attributes) > MOST_ATTRIBUTES:
        raise DeadLetter(
            f"the event has {len(headers)} headers, and SNS and SQS take {MOST_ATTRIBUTES - 1} beside the content type",
            fix=_FIX,
        )
    group = _group_of(message.key or message.id) if is_fifo else None
    return Entry(number, body, attributes, group, message.id)


def _headers_of(message: Message) -> dict[str, str]:
    """The user's own. An empty one says nothing, and is not taken; the names of the message's own are its own."""
    headers = {name: value for name, value in message.headers.items() if value}
    for name, value in headers.items():
        if len(name) > 256 or not _NAME.fullmatch(name) or not _TEXT.fullmatch(value):
            raise DeadLetter(f"the event has a header {name!r}, which SNS and SQS do not take", fix=_FIX)
    return {name: value for name, value in headers.items() if not name.startswith("ce_")}


def _text_of(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if _TEXT.fullmatch(text) else None


def _group_of(key: str) -> str:
    """The key itself, where it can be the name of a group."""
    return key if _GROUP.fullmatch(key) else sha256(key.encode()).hexdigest()


def chunks_of(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """In their order."""
    chunk: list[Entry] = []
    total = 0
    for entry in entries:
        size = entry.size
        if chunk and (len(chunk) == MOST_ENTRIES or total + size > MOST_BYTES):
            yield chunk
            chunk, total = [], 0
        chunk.append(entry)
        total += size
    if chunk:
        yield chunk
