"""The relay to it, over a plain socket."""

from __future__ import annotations

import json
import socket
import threading
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from aftercommit import DeadLetter, InvalidOption, MessageRefused, Unavailable
from aftercommit.relays import Message, Relay


class OwnRelay(Relay):
    name = "own"
    words = ("topic",)

    def __init__(self, host: str, port: int, *, timeout: float = 10) -> None:
        # Addresses and settings; an outbox works on copies of this object.
        self.address = (host, port)
        self.timeout = timeout

    @property
    def where(self) -> str:
        return "own broker at {}:{}".format(*self.address)

    def place(self, given: Any) -> str:
        if not isinstance(given, str) or not given:
            raise InvalidOption(f"to is {given!r}", fix='the name of a topic: to="orders"')
        return given

    def open(self) -> None:
        # What is connected, locked or bound to a loop is made here. Whatever goes wrong means that the broker is away.
        self.lock = threading.Lock()
        self.socket = socket.create_connection(self.address, self.timeout)
        self.answers = self.socket.makefile("rb")

    def close(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()
        if hasattr(self, "answers"):
            self.answers.close()

    def publish(self, messages: Sequence[Message]) -> list[BaseException | None]:
        with self.lock:  # several calls may run beside each other
            try:
                self.socket.sendall(b"".join(map(line_of, messages)))
                return [self.result_of(self.answers.readline()) for _ in messages]
            except OSError as error:
                # Nothing is known of any of them, and the connection is made anew. Whoever waits for this one must not
                # take answers for his own that come late.
                self.close()
                raise Unavailable(self.where) from error

    def result_of(self, answer: bytes) -> BaseException | None:
        match answer.decode().rstrip("\n").partition(" "):
            case ("ok", _, _) if answer.endswith(b"\n"):
                return None  # the broker has said that it stores it
            case ("no", _, text) if "too large" in text:
                return DeadLetter(text)  # it would never be taken
            case ("no", _, text):
                return MessageRefused(text, fix="read the topic, or send to another one")  # tried again
        raise ConnectionError("the connection was cut")


def line_of(message: Message) -> bytes:
    """JSON has room for whatever a header or an attribute says."""
    fields = {
        "to": message.to,
        "id": message.id,
        "key": message.key,
        "content_type": message.content_type,
        "attributes": dict(message.attributes),
        "headers": dict(message.headers),
        "body": b64encode(message.body).decode(),
    }
    return json.dumps(fields).encode() + b"\n"
