"""Walks every state of a model, breadth first, and shows the shortest way to the first promise that breaks.

A state is the table and the memory of each instance. A step changes the table and at most one memory, so what an
instance can do depends on (table, own memory) alone: it is worked out once for each such pair and kept. A state is
then a handful of small numbers in one int, and a million of them take seconds.

Instances are alike: whoever exchanges two of them, in the table and in their memories, gets a state with the same
future. Of such states one is walked, and all are counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, Final, Protocol

#: The bits of one part of a state: so many tables, and so many memories, can be told apart.
_BITS: Final = 20
_MASK: Final = (1 << _BITS) - 1

#: Who takes a step of the world.
_NOBODY: Final = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens: what to call it, and what table and memory are after it."""

    words: str
    table: Hashable
    memory: Hashable = None
    #: What the memories of the others lose by it; None when nothing.
    lost: Hashable = None
    #: A crash, a failure, a stall: it may happen, but nothing may rely on it.
    is_fault: bool = False
    #: The promise that this step breaks.
    broken: str = ""


class Model(Protocol):
    """What the explorer needs to know. All parts of a state are hashable."""

    def start(self) -> tuple[Any, Sequence[Any]]:
        """The first table, and the first memory of each instance."""
        ...

    def world_steps(self, table: Any) -> Iterator[Step]:
        """What happens without an instance: time, writers, operators."""
        ...

    def instance_steps(self, me: int, table: Any, memory: Any) -> Iterator[Step]: ...

    def forget(self, memory: Any, lost: Any) -> Any:
        """The memory of somebody else after a step."""
        ...

    def renamed(self, table: Any, names: Sequence[int]) -> Any:
        """The table when instance `n` is called `names[n]`. No memory may name an instance."""
        ...

    def is_finished(self, table: Any) -> bool:
        """Whether every event has come to its end."""
        ...


@dataclass
class Exploration:
    """What a walk found."""

    states: int
    steps: int
    #: The promise that broke, and the steps that lead there; none when all states are good.
    broken: str = ""
    trace: Sequence[str] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.broken:
            return f"{self.states:,} states, {self.steps:,} steps, every promise kept"
        lines = [f"{number:3}. {words}" for number, words in enumerate(self.trace, 1)]
        return "\n".join([f"broken: {self.broken}", *lines])


@dataclass(slots=True)
class _Moves:
    """The steps out of one table and memory in numbers: what they make of both, and what they take from others."""

    progress: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    #: The same for steps that take something from others.
    taking_progress: list[tuple[int, int]] = field(default_factory=list)
    taking_faults: list[tuple[int, int]] = field(default_factory=list)


class _Found(Exception):
    """A step breaks a promise."""

    def __init__(self, step: Step) -> None:
        self.step = step


class _Numbers:
    """Gives each distinct value a number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._numbers: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
            if number > _MASK:
                raise OverflowError("too many distinct parts for a state")
        return number


def explore(model: Model, *, at_most: int | None = None) -> Exploration:
    """Walk all states, or `at_most` of them, until a promise breaks."""
    return _Walk(model).run(at_most)


class _Walk:
    def __init__(self, model: Model) -> None:
        self._model = model
        table, memories = model.start()
        self._places = [(me, (me + 1) * _BITS) for me in range(len(memories))]
        self._tables, self._memories, self._losses = _Numbers(), _Numbers(), _Numbers()
        first = self._tables.of(table)
        for me, place in self._places:
            first |= self._memories.of(memories[me]) << place
        #: By who takes the step, then by table and memory in their places.
        self._moves: list[dict[int, _Moves]] = [{} for _ in (_NOBODY, *self._places)]
        self._forgotten: dict[tuple[int, int], int] = {}
        #: The names that instances may have instead of their own, and each table under each of them.
        self._names = list(permutations(range(len(memories))))[1:]
        self._renamed: dict[tuple[int, ...], dict[int, int]] = {names: {} for names in self._names}
        #: The states that were walked in the order in which they were found, and from which other one.
        self._states = [first]
        self._parents = array("L", [0])
        #: For each state its successors by steps that are no faults, one after the other, and where they end.
        self._ahead, self._ends = array("L"), array("L")
        #: With those that differ by the names of instances alone.
        self._count = self._steps = 0

    def run(self, at_most: int | None) -> Exploration:
        try:
            self._walk(at_most)
        except _Found as found:
            index = len(self._ends)
            return self._found(found.step.broken, [*self._way_to(index), found.step.words])
        stuck = None if at_most is not None and self._count >= at_most else self._stuck()
        if stuck is not None:
            return self._found("nothing lost: from here the events never end", self._way_to(stuck))
        return self._found()

    def _found(self, broken: str = "", trace: Sequence[str] = ()) -> Exploration:
        return Exploration(self._count, self._steps, broken, trace)

    def _walk(self, at_most: int | None) -> None:
        states, parents, ahead, ends, without = self._states, self._parents, self._ahead, self._ends, self._without
        numbers: dict[int, int] = {}
        known = numbers.get
        sizes = array("B", [self._enter(numbers, states[0], 0)])
        movers = [(me, _MASK << place | _MASK, self._moves[me + 1]) for me, place in ((_NOBODY, 0), *self._places)]
        for index, state in enumerate(states):
            steps = 0
            for me, mask, all_moves in movers:
                mine = state & mask
                moves = all_moves.get(mine) or self._expand(me, mine)
                others = state ^ mine
                progress = [others | parts for parts in moves.progress]
                faults = [others | parts for parts in moves.faults]
                if moves.taking_progress:
                    progress += [without(others, lost, me) | parts for parts, lost in moves.taking_progress]
                if moves.taking_faults:
                    faults += [without(others, lost, me) | parts for parts, lost in moves.taking_faults]
                steps += len(progress) + len(faults)
                for after in progress:
                    number = known(after)
                    if number is None:
                        number = len(states)
                        sizes.append(self._enter(numbers, after, number))
                        states.append(after)
                        parents.append(index)
                    ahead.append(number)
                for after in faults:
                    if after not in numbers:
                        sizes.append(self._enter(numbers, after, len(states)))
                        states.append(after)
                        parents.append(index)
            ends.append(len(ahead))
            self._steps += steps * sizes[index]
            if at_most is not None and self._count >= at_most:
                return

    # ------------------------------------------------------------ names

    def _enter(self, numbers: dict[int, int], state: int, number: int) -> int:
        """Note a state under all the names that instances may have; how many states that are."""
        before = len(numbers)
        numbers[state] = number
        for names in self._names:
            numbers[self._under(names, state)] = number
        size = len(numbers) - before
        self._count += size
        return size

    def _under(self, names: tuple[int, ...], state: int) -> int:
        """The state when instance `n` is called `names[n]`."""
        after = self._table_under(names, state & _MASK)
        for me, place in self._places:
            after |= (state >> place & _MASK) << (names[me] + 1) * _BITS
        return after

    def _table_under(self, names: tuple[int, ...], table: int) -> int:
        renamed = self._renamed[names].get(table)
        if renamed is None:
            value = self._model.renamed(self._tables.values[table], names)
            renamed = self._renamed[names][table] = self._tables.of(value)
        return renamed

    # ------------------------------------------------------------ one state

    def _expand(self, me: int, mine: int) -> _Moves:
        """Work out what follows from one table and memory; kept for all states that have both."""
        moves = self._work_out(me, mine) if me <= 0 else self._as_the_first(me, mine)
        self._moves[me + 1][mine] = moves
        return moves

    def _work_out(self, me: int, mine: int) -> _Moves:
        moves = _Moves()
        for step in self._steps_of(me, mine):
            if step.broken:
                raise _Found(step)
            parts = self._parts(me, step)
            if step.lost is None:
                (moves.faults if step.is_fault else moves.progress).append(parts)
            else:
                taking = moves.taking_faults if step.is_fault else moves.taking_progress
                taking.append((parts, self._losses.of(step.lost)))
        return moves

    def _as_the_first(self, me: int, mine: int) -> _Moves:
        """What an instance can do is what the first one could do in its place."""
        names = tuple({0: me, me: 0}.get(other, other) for other, _ in self._places)

        place = (me + 1) * _BITS

        def moved(parts: int) -> int:
            return self._table_under(names, parts & _MASK) | parts >> _BITS << place

        theirs = self._table_under(names, mine & _MASK) | mine >> place << _BITS
        try:
            moves = self._moves[1].get(theirs) or self._expand(0, theirs)
        except _Found:
            self._work_out(me, mine)  # the same in its own words
            raise
        return _Moves(
            [moved(parts) for parts in moves.progress],
            [moved(parts) for parts in moves.faults],
            [(moved(parts), lost) for parts, lost in moves.taking_progress],
            [(moved(parts), lost) for parts, lost in moves.taking_faults],
        )

    def _steps_of(self, me: int, mine: int) -> Iterator[Step]:
        table = self._tables.values[mine & _MASK]
        if me == _NOBODY:
            return self._model.world_steps(table)
        return self._model.instance_steps(me, table, self._memories.values[mine >> ((me + 1) * _BITS)])

    def _parts(self, me: int, step: Step) -> int:
        table = self._tables.of(step.table)
        return table if me == _NOBODY else table | self._memories.of(step.memory) << ((me + 1) * _BITS)

    def _without(self, others: int, lost: int, me: int) -> int:
        """The memories of all others after they lost what a step takes from them."""
        changed = 0
        for other, place in self._places:
            if other != me:
                memory = (others >> place) & _MASK
                after = self._forgotten.get((memory, lost))
                if after is None:
                    forgotten = self._model.forget(self._memories.values[memory], self._losses.values[lost])
                    after = self._forgotten[memory, lost] = self._memories.of(forgotten)
                changed |= after << place
        return changed

    # ------------------------------------------------------------ what was found

    def _way_to(self, index: int) -> list[str]:
        """The words of the steps from the first state to this one."""
        way: list[str] = []
        while index:
            parent = self._parents[index]
            way.append(self._words(self._states[parent], self._states[index]))
            index = parent
        return way[::-1]

    def _words(self, before: int, after: int) -> str:
        for me, place in ((_NOBODY, 0), *self._places):
            mine = before & (_MASK << place | _MASK)
            for step in self._steps_of(me, mine):
                others = before ^ mine
                if step.lost is not None:
                    others = self._without(others, self._losses.of(step.lost), me)
                if others | self._parts(me, step) == after:
                    return step.words
        raise LookupError("no step leads there")

    def _stuck(self) -> int | None:
        """The first state from which no steps but faults lead to the end of every event."""
        finished = [self._model.is_finished(table) for table in self._tables.values]
        ends_well = bytearray(finished[state & _MASK] for state in self._states)
        ahead, ends = self._ahead, self._ends
        waiting = [index for index in range(len(ends_well) - 1, -1, -1) if not ends_well[index]]
        while waiting:
            left = []
            for index in waiting:
                start = ends[index - 1] if index else 0
                if any(map(ends_well.__getitem__, ahead[start : ends[index]])):
                    ends_well[index] = True
                else:
                    left.append(index)
            if len(left) == len(waiting):
                return left[-1]
            waiting = left
        return None
