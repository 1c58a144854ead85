"""The judge of what relays have sent: what was written, what the broker has, and what happened meanwhile."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from tests.promises.journal import Line

#: The header of a message that names the connection that it came through.
SENT_BY = "sent-by"

#: The broker, among the pids of those to whom something happens.
BROKER = 0


class Copy(NamedTuple):
    """A message that the broker has."""

    connection: str
    key: str
    number: int


@dataclass
class Sending:
    """A message that was given to a driver."""

    at: float
    pid: int
    connection: str
    key: str
    number: int
    #: What came of it: `stored`, `away`, or nothing that anybody knows of.
    how: str = ""


@dataclass
class Fault:
    """What happened to a process, or to the broker and its connections."""

    what: str
    pid: int
    begin: float
    end: float = float("inf")
    #: Events that were sent again because of it, and are at the broker more than once.
    repeated: int = 0


@dataclass
class Story:
    """All that the journal tells of relays, in the order of time."""

    sendings: list[Sending] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    opened: dict[str, float] = field(default_factory=dict)
    #: When a process found that an event had been taken from it.
    lost: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    refused: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> Story:
        story, on_the_way, open_faults = cls(), dict[tuple[str, int], Sending](), dict[int, Fault]()
        for line in sorted(lines):
            connection, _, key = line.what.partition("/")
            match line.kind:
                case "opened":
                    story.opened[line.what] = line.at
                case "sent":
                    sending = Sending(line.at, line.pid, connection, key, line.number)
                    story.sendings.append(sending)
                    on_the_way[line.what, line.number] = sending
                case "stored" | "away":
                    on_the_way.pop((line.what, line.number)).how = line.kind
                case "refused":
                    story.refused.append(f"{line.what} {line.number}")
                case "lost":
                    story.lost[line.pid].append(line.at)
                case "trouble":
                    open_faults[line.number] = fault = Fault(line.what, line.number, line.at)
                    story.faults.append(fault)
                case "over":
                    open_faults.pop(line.number).end = line.at
        return story

    def cause(self, first: Sending, again: Sending) -> Fault | None:
        """Why something was sent once more. What the broker has confirmed must be sent again only when something
        happened to a process: to the one that could not write that down, or to the one that did not know."""
        since = first.at if first.how == "stored" else self.opened[first.connection]
        for fault in self.faults:
            if fault.begin <= again.at and fault.end >= since:
                if fault.pid in (first.pid, again.pid):
                    return fault
                if fault.pid == BROKER and first.how != "stored":
                    return fault
        for sending in (first, again):  # a machine that is too slow for its leases
            times = self.lost.get(sending.pid, [])
            found = bisect_right(times, sending.at)
            if found < len(times):
                return Fault("lease lost", sending.pid, times[found])
        return None


@dataclass
class Verdict:
    """What was found wrong, and figures."""

    wrong: list[str]
    events: int
    copies: int
    #: By what caused them.
    repeated: Counter[str]


def judged(
    written: Mapping[str, Sequence[int]], copies: Sequence[Copy], lines: Iterable[Line], *, held: int
) -> Verdict:
    """`held`: the most events that a process has in hand."""
    story = Story.of(lines)
    wrong = [f"refused: {each}" for each in story.refused]
    wrong += _lost_or_out_of_order(written, copies)
    wrong += _not_as_sent(story, copies)
    repeated: Counter[str] = Counter()
    wrong += _sent_again_for_nothing(story, copies, held, repeated)
    wrong += _backwards_for_nothing(story)
    return Verdict(wrong, sum(map(len, written.values())), len(copies), repeated)


def _lost_or_out_of_order(written: Mapping[str, Sequence[int]], copies: Sequence[Copy]) -> Iterator[str]:
    """The first copies of a key are its events in the order of writing."""
    firsts: dict[str, dict[int, None]] = defaultdict(dict)
    for copy in copies:
        firsts[copy.key].setdefault(copy.number)
    for key in {*written, *firsts}:
        wanted, found = list(written.get(key, ())), list(firsts[key])
        if lost := sorted(set(wanted) - set(found)):
            yield f"lost: {key} {lost}"
        if strange := sorted(set(found) - set(wanted)):
            yield f"never written: {key} {strange}"
        if not lost and not strange and found != wanted:
            number = next(n for n, (one, other) in enumerate(zip(found, wanted, strict=True)) if one != other)
            yield f"out of order: {key} {found[max(0, number - 2) : number + 4]} at {number}"


def _not_as_sent(story: Story, copies: Sequence[Copy]) -> Iterator[str]:
    """What came through a connection is what was sent there, in that order, for each key."""
    sent: dict[tuple[str, str], Iterator[int]] = {}
    by_connection: dict[tuple[str, str], list[int]] = defaultdict(list)
    for sending in story.sendings:
        by_connection[sending.connection, sending.key].append(sending.number)
    for copy in copies:
        place = copy.connection, copy.key
        rest = sent.setdefault(place, iter(by_connection[place]))
        if copy.number not in rest:  # which takes out all up to it
            yield f"stored otherwise than sent: {copy}; sent: {by_connection[place]}"
            sent[place] = iter(())


def _sent_again_for_nothing(story: Story, copies: Sequence[Copy], held: int, repeated: Counter[str]) -> Iterator[str]:
    counts = Counter((copy.key, copy.number) for copy in copies)
    by_event: dict[tuple[str, int], list[Sending]] = defaultdict(list)
    for sending in story.sendings:
        by_event[sending.key, sending.number].append(sending)
    for event, sendings in by_event.items():
        surplus = counts[event] - 1
        for first, again in pairwise(sendings):
            cause = story.cause(first, again)
            if cause is None:
                yield f"sent again for no reason: {event}, {first.how or 'unanswered'} by {first.pid} at {first.at:.3f}"
                yield f"    and then by {again.pid} at {again.at:.3f}"
            elif surplus > 0:
                surplus -= 1
                cause.repeated += 1
                repeated[cause.what] += 1
    pids = {sending.pid for sending in story.sendings}
    for fault in story.faults:
        most = held * len(pids) if fault.pid == BROKER else held
        if fault.repeated > most:
            yield f"{fault.repeated} events came again after {fault}, and at most {most} were on the way"


def _backwards_for_nothing(story: Story) -> Iterator[str]:
    """A process sends a key in order, and begins anew only when something has happened."""
    last: dict[tuple[int, str], Sending] = {}
    for sending in story.sendings:
        before = last.get((sending.pid, sending.key))
        if before is not None and sending.number <= before.number and story.cause(before, sending) is None:
            yield f"{sending.key} {sending.number} sent after {before.number} by {sending.pid} at {sending.at:.3f}"
        last[sending.pid, sending.key] = sending
