"""The handler of a relay: events in, the broker's word on each out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias

from aftercommit.errors import BrokenRelay
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import BatchResult, RetryAfter
from aftercommit.relays.cloudevents import MessageMaker
from aftercommit.relays.line import Answers, AsyncLine, Line
from aftercommit.relays.message import Message

#: For an event: done, what went wrong, or that it was not sent because one before it of its key was not.
Entry: TypeAlias = BaseException | RetryAfter | None

Waves: TypeAlias = Generator[Sequence[Message], Answers, list[Entry]]

#: One that was not sent comes again at once, and nothing of it is counted.
NOT_SENT = RetryAfter(0)


class Publisher:
    """Sends events by a relay. Where order is kept the second event of a key is sent when the first is confirmed."""

    def __init__(self, line: Line, make: MessageMaker, *, is_ordered: bool) -> None:
        self.line = line
        self._make = make
        self._is_ordered = is_ordered

    def function(self) -> Callable[[list[EventEnvelope]], Any]:
        """In the colour of the relay."""
        line = self.line

        async def publish_async(events: list[EventEnvelope]) -> BatchResult:
            waves, answers = self.waves(events), None
            while True:
                try:
                    messages = waves.send(answers)  # type: ignore[arg-type]
                except StopIteration as stop:
                    return BatchResult(stop.value)
                answers = await _answered_async(line, messages)

        def publish(events: list[EventEnvelope]) -> BatchResult:
            waves, answers = self.waves(events), None
            while True:
                try:
                    messages = waves.send(answers)  # type: ignore[arg-type]
                except StopIteration as stop:
                    return BatchResult(stop.value)
                answers = _answered(line, messages)

        return publish_async if isinstance(line, AsyncLine) else publish

    def waves(self, events: Sequence[EventEnvelope]) -> Waves:
        """Gives messages that may be sent at the same time, and takes the answers to them."""
        entries: list[Entry] = [None] * len(events)
        failed: set[str] = set()
        for wave in self._split(events):
            numbers, messages = [], []
            for number in wave:
                key = events[number].key if self._is_ordered else None
                if key is not None and key in failed:
                    entries[number] = NOT_SENT
                    continue
                try:
                    messages.append(self._make(events[number]))
                    numbers.append(number)
                except Exception as error:  # of a function of the user's, for this event
                    entries[number] = error
                    failed.add(key or "")
            if not messages:
                continue
            answers = _checked((yield messages), messages, self.line)
            for number, answer in zip(numbers, answers, strict=True):
                entries[number] = answer
                if answer is not None:
                    failed.add(events[number].key or "")
        return entries

    def _split(self, events: Sequence[EventEnvelope]) -> Sequence[Sequence[int]]:
        """The numbers of the events, in waves with no two of one key."""
        if not self._is_ordered:
            return (range(len(events)),)
        waves: list[list[int]] = []
        seen: dict[str, int] = {}
        for number, event in enumerate(events):
            depth = 0 if event.key is None else seen.get(event.key, 0)
            if event.key is not None:
                seen[event.key] = depth + 1
            if depth == len(waves):
                waves.append([])
            waves[depth].append(number)
        return waves


async def _answered_async(line: Line, messages: Sequence[Message]) -> Answers:
    """What a relay raises holds for all of them; a cancellation is not its own."""
    try:
        return await line.publish(messages)  # type: ignore[no-any-return]
    except Exception as error:
        return [error] * len(messages)


def _answered(line: Line, messages: Sequence[Message]) -> Answers:
    try:
        return line.publish(messages)  # type: ignore[no-any-return]
    except Exception as error:
        return [error] * len(messages)


def _checked(answers: Any, messages: Sequence[Message], line: Line) -> Answers:
    """An answer that is missing must not pass for a confirmation."""
    is_whole = isinstance(answers, Sequence) and len(answers) == len(messages)
    if is_whole and all(answer is None or isinstance(answer, BaseException) for answer in answers):
        return answers  # type: ignore[no-any-return]
    broken = BrokenRelay(
        f"{type(line.relay).__name__}.publish() got {len(messages)} messages and gave {answers!r:.200}",
        fix="return a list with None or an exception for each message, in their order",
    )
    return [broken] * len(messages)
