"""What SNS and SQS have in common: a client, and batches with an answer for each message."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from inspect import signature
from typing import Any, ClassVar, Final

from aftercommit.errors import InvalidOption, MessageRefused, MissingDriver, did_you_mean
from aftercommit.events.names import shown
from aftercommit.events.outcome import DeadLetter, Unavailable
from aftercommit.events.redact import redact
from aftercommit.relays.message import Message
from aftercommit.relays.relay import Relay

try:
    from boto3.session import Session
    from botocore.config import Config
except ImportError as error:
    raise MissingDriver(f"boto3 is not installed ({error})", fix='pip install "aftercommit[aws]"') from error

from aftercommit.relays.aws.answers import FAILED, alone, of_entry, of_request
from aftercommit.relays.aws.entries import Entry, chunks_of, entry_of

#: Below the timeout of a relay's call, with one more try. botocore's minutes would keep a worker for as long.
_TIMES: Final[Any] = {"connect_timeout": 3, "read_timeout": 8, "retries": {"mode": "standard", "total_max_attempts": 2}}

_NOTHING: Final = "see what answers there: AWS says something of each"

_OPTIONS: Final = frozenset(signature(Session.client).parameters) - {"self", "service_name"}


class Batches(Relay):
    """Sends by requests of up to ten messages."""

    _service: ClassVar[str]
    _body_name: ClassVar[str]
    #: What a place is called, and what it looks like.
    _kind: ClassVar[str]
    _example: ClassVar[str]

    def __init__(self, place: str | None, client: Any, options: dict[str, Any]) -> None:
        for name, value in options.items():
            if name not in _OPTIONS:
                shows = shown(value) if name.startswith("use") else "…"
                raise InvalidOption(
                    f"{type(self).__name__}() has no option {name}={shows}", fix=did_you_mean(name, _OPTIONS)
                )
        if client is not None and options:
            raise InvalidOption(
                f"{type(self).__name__}() was given a client and {', '.join(options)}, which a client has already",
                fix="give one or the other",
            )
        self._place = None if place is None else self.place(place)
        self._given, self._options = client, options

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self._place is None else repr(self._place)})"

    @property
    def where(self) -> str:
        return self._place or str(self._options.get("endpoint_url") or f"{type(self).__name__} of AWS")

    def place(self, given: Any) -> str:
        """Checked; the relay's own when there is none."""
        if given is None and self._place is not None:
            return self._place
        if not isinstance(given, str) or not self._is_place(given):
            raise InvalidOption(
                f"no {self._kind} was given" if given is None else f"{redact(shown(given))} is no {self._kind}",
                fix=f'pass one: {type(self).__name__}("{self._example}")',
            )
        return given

    _place: str | None = None

    def destination(self, place: Any) -> str:
        """Each queue or topic has a circuit of its own."""
        return str(place)

    @abstractmethod
    def _is_place(self, given: str) -> bool: ...

    @abstractmethod
    def _region_of(self, place: str) -> str | None:
        """The region that is part of its name."""

    @abstractmethod
    def _request(self, place: str, entries: list[dict[str, Any]]) -> Any:
        """Send a batch; the response of the service."""

    # ------------------------------------------------------------ the client

    def open(self) -> None:
        self._client = self._given if self._given is not None else self._new_client()

    def close(self) -> None:
        if self._given is None:
            self._client.close()

    def _new_client(self) -> Any:
        """Of a session of its own: the one that boto3 keeps may not be used by two threads at once."""
        config: Any = Config(**_TIMES)
        options = {**self._options, "config": config.merge(self._options.get("config") or Config())}
        session: Any = Session()
        if options.get("region_name") is None and session.region_name is None and self._place is not None:
            options["region_name"] = self._region_of(self._place)
        return session.client(self._service, **options)

    # ------------------------------------------------------------ sending

    def publish(self, messages: Sequence[Message]) -> list[BaseException | None]:
        answers: list[BaseException | None] = [None] * len(messages)
        entries: dict[str, list[Entry]] = {}
        for number, message in enumerate(messages):
            try:
                entry = entry_of(number, message, is_fifo=message.to.endswith(".fifo"))
                entries.setdefault(message.to, []).append(entry)
            except DeadLetter as error:
                answers[number] = error
        for place, all_of_it in entries.items():
            gone: Unavailable | None = None
            for chunk in chunks_of(all_of_it):
                told = self._send(place, chunk) if gone is None else {entry.number: gone for entry in chunk}
                for entry in chunk:
                    answers[entry.number] = told[entry.number]
                gone = gone or next((each for each in told.values() if isinstance(each, Unavailable)), None)
        return answers

    def _send(self, place: str, chunk: list[Entry]) -> dict[int, BaseException | None]:
        try:
            response = self._request(place, [entry.words(self._body_name) for entry in chunk])
        except FAILED as error:
            verdict = of_request(error, place)
            if verdict is not None:
                return {entry.number: verdict for entry in chunk}
            if len(chunk) == 1:
                return {chunk[0].number: alone(chunk[0], error, place)}
            # One of them is refused with all the others. Which one, each has to show alone.
            return {number: told for entry in chunk for number, told in self._send(place, [entry]).items()}
        stored = {each["Id"] for each in response.get("Successful", ())}
        failed = {each["Id"]: each for each in response.get("Failed", ())}
        return {entry.number: _answer(entry, stored, failed, place) for entry in chunk}


def _answer(entry: Entry, stored: set[str], failed: dict[str, Any], place: str) -> BaseException | None:
    name = str(entry.number)
    if name in failed:
        return of_entry(entry, failed[name].get("Code", ""), failed[name].get("Message", ""), place)
    return None if name in stored else MessageRefused(f"{place} said nothing of the message", fix=_NOTHING)
