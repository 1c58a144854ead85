"""What an instance takes for its own, as a model: heartbeats, takes and gifts of one partition cross each other, and
their answers may be late or lost. Others and time are steps of the world. A row of the partition waits all the while;
whoever takes the partition for his own can deliver it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from tests.model.explorer import Step

ME: Final = 0
OTHER: Final = 1
NEVER: Final = -1


class Fault(StrEnum):
    """One changed rule of ownership."""

    GIFT_IS_FORGOTTEN = "a heartbeat that was faster than a gift brings the partition back"
    GIFT_STAYS_AFTER_A_FAILURE = "a gift that failed is remembered as one"
    FAILED_GIFT_FORGETS_OLDER_ONES = "a gift that failed is forgotten together with those before it"
    GIFT_IS_REMEMBERED_WITHOUT_EPOCH = "a partition that was given is never found by heartbeats again"
    GIVEN_BEFORE_IT_IS_LET_GO = "a partition is let go when its gift is answered"
    OLD_BEAT_UNDOES_A_TAKE = "a heartbeat removes what was taken since it began"
    BEAT_FINDS_NOTHING_NEW = "a heartbeat adds nothing"


class Partition(NamedTuple):
    """In the table, with a row that waits."""

    owner: int | None = None
    epoch: int = 0
    is_delivered: bool = False
    #: How often others take it, this instance gives it, falls silent, or does not hear an answer.
    others: int = 1
    gifts: int = 2
    silences: int = 1
    deaf: int = 1


class Beat(NamedTuple):
    """A heartbeat under way: what was owned when it began, and what it found."""

    before: int = NEVER
    has_answer: bool = False
    found: int = NEVER


class Chore(NamedTuple):
    """A take or a gift under way."""

    is_gift: bool
    epoch: int = NEVER
    has_answer: bool = False


class Known(NamedTuple):
    """What the instance knows: the epochs under which it owns the partition, and gave it."""

    owned: int = NEVER
    given: int = NEVER
    beat: Beat | None = None
    chore: Chore | None = None
    #: Nobody sees this: the last epoch whose gift was answered.
    gone: int = NEVER


class OwningProtocol:
    """One instance, by the rules or with a fault."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = frozenset(faults)

    def start(self) -> tuple[Partition, Sequence[Known]]:
        return Partition(), [Known()]

    def is_finished(self, table: Partition) -> bool:
        return table.is_delivered

    def forget(self, memory: Known, lost: object) -> Known:
        return memory

    def renamed(self, table: Partition, names: Sequence[int]) -> Partition:
        return table

    def world_steps(self, table: Partition) -> Iterator[Step]:
        if table.owner is None and table.others:
            taken = table._replace(owner=OTHER, epoch=table.epoch + 1, others=table.others - 1)
            yield Step("another instance takes the partition", taken)
        if table.owner == OTHER:
            yield Step("another instance delivers", table._replace(is_delivered=True))
            yield Step("another instance gives the partition", table._replace(owner=None))
        if table.owner == ME and table.silences:
            taken = table._replace(owner=OTHER, epoch=table.epoch + 1, silences=table.silences - 1)
            yield Step("the instance is silent and another one takes the partition", taken, is_fault=True)

    def instance_steps(self, me: int, table: Partition, memory: Known) -> Iterator[Step]:
        if problem := _what_is_wrong(memory):
            yield Step("and so it is", table, memory, broken=problem)
            return
        if memory.owned != NEVER:
            yield Step("the instance delivers", table._replace(is_delivered=True), memory)
        yield from self._beat(table, memory)
        yield from self._take(table, memory)
        yield from self._give(table, memory)

    # ------------------------------------------------------------ heartbeats

    def _beat(self, table: Partition, memory: Known) -> Iterator[Step]:
        beat = memory.beat
        if beat is None:
            yield Step("a heartbeat begins", table, memory._replace(beat=Beat(memory.owned)))
        elif not beat.has_answer:
            found = table.epoch if table.owner == ME else NEVER
            yield Step(
                "a heartbeat is written", table, memory._replace(beat=beat._replace(has_answer=True, found=found))
            )
        else:
            yield self._found(table, memory._replace(beat=None), beat)

    def _found(self, table: Partition, memory: Known, beat: Beat) -> Step:
        broken = ""
        is_old = memory.owned != beat.before and Fault.OLD_BEAT_UNDOES_A_TAKE not in self._faults
        if memory.owned not in (NEVER, beat.found) and not is_old:
            if table.owner == ME and table.epoch == memory.owned:
                broken = "taken is taken: an older heartbeat undoes it"
            memory = memory._replace(owned=NEVER)
        if beat.found > memory.owned and self._is_believed(memory, beat.found):
            memory = memory._replace(owned=beat.found)
        return Step("a heartbeat is answered", table, memory, broken=broken)

    def _is_believed(self, memory: Known, epoch: int) -> bool:
        """Whether a heartbeat that finds the partition is newer than the gift of it."""
        if Fault.BEAT_FINDS_NOTHING_NEW in self._faults:
            return False
        if Fault.GIFT_IS_REMEMBERED_WITHOUT_EPOCH in self._faults:
            return memory.given == NEVER
        return epoch > memory.given or Fault.GIFT_IS_FORGOTTEN in self._faults

    # ------------------------------------------------------------ takes

    def _take(self, table: Partition, memory: Known) -> Iterator[Step]:
        chore = memory.chore
        if chore is None:
            if table.owner is None:
                yield Step("a take begins", table, memory._replace(chore=Chore(is_gift=False)))
        elif not chore.is_gift and not chore.has_answer:
            is_free = table.owner is None
            taken = table._replace(owner=ME, epoch=table.epoch + 1) if is_free else table
            answer = Chore(is_gift=False, epoch=taken.epoch if is_free else NEVER, has_answer=True)
            yield Step("a take is written", taken, memory._replace(chore=answer))
        elif not chore.is_gift:
            after = memory._replace(chore=None)
            yield Step("a take is answered", table, after._replace(owned=max(memory.owned, chore.epoch)))
            if table.deaf:
                yield Step("the answer to a take is lost", table._replace(deaf=table.deaf - 1), after, is_fault=True)

    # ------------------------------------------------------------ gifts

    def _give(self, table: Partition, memory: Known) -> Iterator[Step]:
        chore = memory.chore
        if chore is None:
            if memory.owned != NEVER and table.gifts:
                poorer = table._replace(gifts=table.gifts - 1)
                after = memory._replace(chore=Chore(is_gift=True, epoch=memory.owned))
                if Fault.GIVEN_BEFORE_IT_IS_LET_GO not in self._faults:
                    after = after._replace(owned=NEVER, given=memory.owned)
                yield Step("a gift begins", poorer, after, is_fault=True)
        elif chore.is_gift and not chore.has_answer:
            is_mine = table.owner == ME and table.epoch == chore.epoch
            given = table._replace(owner=None) if is_mine else table
            yield Step("a gift is written", given, memory._replace(chore=chore._replace(has_answer=True)))
            if table.deaf:
                yield self._not_given(table, memory, "a gift fails")
        elif chore.is_gift:
            after = memory._replace(chore=None, gone=chore.epoch)
            if Fault.GIVEN_BEFORE_IT_IS_LET_GO in self._faults:
                after = after._replace(owned=NEVER, given=chore.epoch)
            yield Step("a gift is answered", table, after)
            if table.deaf:
                yield self._not_given(table, memory, "the answer to a gift is lost")

    def _not_given(self, table: Partition, memory: Known, words: str) -> Step:
        """Nobody knows whether it was given, and the next heartbeat finds out. What was given before stays given."""
        after = memory._replace(chore=None)
        if Fault.FAILED_GIFT_FORGETS_OLDER_ONES in self._faults:
            after = after._replace(given=NEVER)
        elif Fault.GIFT_STAYS_AFTER_A_FAILURE not in self._faults:
            after = after._replace(given=memory.given - 1)
        return Step(words, table._replace(deaf=table.deaf - 1), after, is_fault=True)


def _what_is_wrong(memory: Known) -> str:
    if memory.owned == NEVER:
        return ""
    if memory.owned == memory.gone:
        return "given is given: the instance takes for its own what it gave"
    if memory.chore is not None and memory.chore.is_gift and memory.chore.epoch == memory.owned:
        return "given is given: the instance takes for its own what it is giving"
    return ""
