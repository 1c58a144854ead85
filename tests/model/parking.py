"""How events pass the lanes without the mutex, as a model: workers that look, park and sleep, somebody who appends and
wakes, and somebody who asks whether all is quiet. Each read or change of what they share is a step of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from tests.model.explorer import Step


class Haste(StrEnum):
    """One changed rule of the lanes."""

    PARKED_AFTER_THE_LAST_LOOK = "a worker says that it parks after its last look"
    NO_LAST_LOOK = "a worker that parks does not look again"
    PARKED_ARE_COUNTED_BEFORE_THE_APPEND = "who offers looks for the parked before it appends"
    WOKEN_FOR_NOTHING_IS_PARKED_NO_MORE = "a worker that was woken for nothing sleeps on, and is counted no more"
    BUSY_AFTER_THE_TAKE = "a worker counts as busy after it has taken"
    BUSY_IS_ASKED_FIRST = "who asks for quiet looks at the workers before the lanes"


class Offering(Enum):
    """What the one who offers does next."""

    APPEND = auto()
    LOOK = auto()
    WAKE = auto()


class Lane(NamedTuple):
    """What all share. The mutex belongs to a worker between its last look and its sleep."""

    to_offer: int = 2
    offering: Offering = Offering.APPEND
    saw_parked: bool = False
    items: int = 0
    done: int = 0
    busy: int = 0
    parked: int = 0
    asleep: int = 0
    woken: int = 0
    has_mutex: bool = True
    #: What the one who asks for quiet has seen at its first look; None before it.
    first_look: bool | None = None
    says_quiet: bool = False


class Phase(Enum):
    """What a worker does next."""

    LOOK = auto()
    COUNT = auto()
    TAKE = auto()
    RUN = auto()
    PARK = auto()
    LAST_LOOK = auto()
    PARK_LATE = auto()
    SLEEP = auto()
    ASLEEP = auto()


class ParkingProtocol:
    """Two workers, by the rules or with a haste."""

    def __init__(self, *hastes: Haste, events: int = 2, workers: int = 2) -> None:
        self._hastes = frozenset(hastes)
        self._events = events
        self._workers = workers

    def start(self) -> tuple[Lane, Sequence[Phase]]:
        return Lane(to_offer=self._events), [Phase.LOOK] * self._workers

    def is_finished(self, table: Lane) -> bool:
        return table.done == self._events and table.says_quiet

    def forget(self, memory: Phase, lost: object) -> Phase:
        return memory

    def renamed(self, table: Lane, names: Sequence[int]) -> Lane:
        return table

    # ------------------------------------------------------------ who offers, and who asks

    def world_steps(self, table: Lane) -> Iterator[Step]:
        if table.to_offer:
            yield from self._offer(table)
        elif not table.says_quiet:
            yield self._ask(table)

    def _offer(self, table: Lane) -> Iterator[Step]:
        looks_first = Haste.PARKED_ARE_COUNTED_BEFORE_THE_APPEND in self._hastes
        match table.offering:
            case Offering.APPEND:
                appended = table._replace(items=table.items + 1, offering=Offering.WAKE)
                if looks_first:
                    looked = table._replace(saw_parked=table.parked > 0, offering=Offering.LOOK)
                    yield Step("it is asked whether anybody is parked", looked)
                else:
                    yield Step("an item is appended", appended._replace(offering=Offering.LOOK))
            case Offering.LOOK if looks_first:
                yield Step("an item is appended", table._replace(items=table.items + 1, offering=Offering.WAKE))
            case Offering.LOOK:
                looked = table._replace(saw_parked=table.parked > 0, offering=Offering.WAKE)
                yield Step("it is asked whether anybody is parked", looked)
            case Offering.WAKE if not table.saw_parked:
                yield Step("nobody is woken", _offered(table))
            case Offering.WAKE if table.has_mutex:
                sleeps_on = table.asleep > table.woken
                yield Step("one is woken", _offered(table._replace(woken=table.woken + sleeps_on)))

    def _ask(self, table: Lane) -> Step:
        is_empty, is_idle = not table.items, not table.busy
        first, second = (is_idle, is_empty) if Haste.BUSY_IS_ASKED_FIRST in self._hastes else (is_empty, is_idle)
        if table.first_look is None:
            return Step("whether all is quiet: the first look", table._replace(first_look=first))
        if not (table.first_look and second):
            return Step("it is not", table._replace(first_look=None))
        broken = "" if table.done == self._events else "quiet is quiet: an item has not been delivered"
        return Step("it is", table._replace(says_quiet=True), broken=broken)

    # ------------------------------------------------------------ a worker

    def instance_steps(self, me: int, table: Lane, memory: Phase) -> Iterator[Step]:
        counts_late = Haste.BUSY_AFTER_THE_TAKE in self._hastes
        match memory:
            case Phase.LOOK:
                after = table if counts_late else table._replace(busy=table.busy + 1)
                yield Step("a worker counts as busy", after, Phase.TAKE)
            case Phase.TAKE if table.items:
                taken = table._replace(items=table.items - 1)
                yield Step("it takes an item", taken, Phase.COUNT if counts_late else Phase.RUN)
            case Phase.TAKE:
                after = table if counts_late else table._replace(busy=table.busy - 1)
                yield Step("it finds nothing", after, Phase.PARK)
            case Phase.COUNT:
                yield Step("it counts as busy at last", table._replace(busy=table.busy + 1), Phase.RUN)
            case Phase.RUN:
                ended = table._replace(busy=table.busy - 1, done=table.done + 1)
                yield Step("it has delivered the item", ended, Phase.LOOK)
            case Phase.PARK:
                if Haste.PARKED_AFTER_THE_LAST_LOOK in self._hastes:
                    yield Step("it does not say yet that it parks", table, Phase.LAST_LOOK)
                else:
                    yield Step("it says that it parks", table._replace(parked=table.parked + 1), Phase.LAST_LOOK)
            case Phase.LAST_LOOK if table.has_mutex:
                yield self._last_look(table)
            case Phase.PARK_LATE:
                yield Step("it says that it parks", table._replace(parked=table.parked + 1), Phase.SLEEP)
            case Phase.SLEEP:
                yield Step("it sleeps", table._replace(asleep=table.asleep + 1, has_mutex=True), Phase.ASLEEP)
            case Phase.ASLEEP if table.woken and table.has_mutex:
                yield self._wake(table)
            case _:
                pass

    def _last_look(self, table: Lane) -> Step:
        """With the mutex, which it keeps until it sleeps. One that goes on is parked no more."""
        is_late = Haste.PARKED_AFTER_THE_LAST_LOOK in self._hastes
        if table.items and Haste.NO_LAST_LOOK not in self._hastes:
            after = table if is_late else table._replace(parked=table.parked - 1)
            return Step("it looks a last time, and there is something", after, Phase.LOOK)
        then = Phase.PARK_LATE if is_late else Phase.SLEEP
        return Step("it looks a last time", table._replace(has_mutex=False), then)

    def _wake(self, table: Lane) -> Step:
        woken = table._replace(asleep=table.asleep - 1, woken=table.woken - 1)
        if table.items:
            return Step("a worker wakes", woken._replace(parked=table.parked - 1), Phase.LOOK)
        if Haste.WOKEN_FOR_NOTHING_IS_PARKED_NO_MORE in self._hastes:
            return Step(
                "a worker wakes for nothing", woken._replace(parked=table.parked - 1, has_mutex=False), Phase.SLEEP
            )
        return Step("a worker wakes for nothing", woken, Phase.LAST_LOOK)


def _offered(table: Lane) -> Lane:
    return table._replace(to_offer=table.to_offer - 1, offering=Offering.APPEND, saw_parked=False)
