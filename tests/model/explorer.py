"""Walks every state of a model, breadth first, and shows the shortest way to the first promise that breaks.

A state is the table and the memory of each instance. A step changes the table and at most one memory, so what an
instance can do depends on (table, own memory) alone: it is worked out once for each such pair and kept. A state is
then a handful of small numbers in one int, and a million of them take seconds.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

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
    #: What the memories of the others lose by it; empty when nothing.
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


class _Move(NamedTuple):
    """A step in numbers: the parts of the state that it sets, and what it takes from others."""

    parts: int
    lost: int
    is_fault: bool
    step: Step


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
        self._count = len(memories)
        self._tables, self._memories, self._losses = _Numbers(), _Numbers(), _Numbers()
        self._losses.of(None)
        self._first = self._pack(self._tables.of(table), [self._memories.of(memory) for memory in memories])
        self._world: dict[int, list[_Move]] = {}
        self._moves: list[dict[int, list[_Move]]] = [{} for _ in memories]
        self._forgotten: dict[int, int] = {}
        self._order = [self._first]
        self._parents = array("L", [0])
        #: For each state its successors by steps that are no faults, and where its part of them ends.
        self._ahead, self._ends = array("L"), array("L")

    def run(self, at_most: int | None) -> Exploration:
        numbers = {self._first: 0}
        order, parents, ahead, ends = self._order, self._parents, self._ahead, self._ends
        steps = 0
        for index, state in enumerate(order):
            for after, move in self._successors(state):
                steps += 1
                if move.step.broken:
                    return self._counter_example(index, move, steps)
                number = numbers.get(after)
                if number is None:
                    number = numbers[after] = len(order)
                    order.append(after)
                    parents.append(index)
                if not move.is_fault:
                    ahead.append(number)
            ends.append(len(ahead))
            if at_most is not None and len(order) >= at_most:
                return Exploration(len(order), steps)
        stuck = self._stuck()
        if stuck is not None:
            return Exploration(len(order), steps, "nothing is lost: from here no event ever ends", self._way_to(stuck))
        return Exploration(len(order), steps)

    # ------------------------------------------------------------ one state

    def _pack(self, table: int, memories: Sequence[int]) -> int:
        packed = table
        for place, memory in enumerate(memories, 1):
            packed |= memory << (place * _BITS)
        return packed

    def _successors(self, state: int) -> Iterator[tuple[int, _Move]]:
        """Each state that follows, with the move that leads there."""
        table = state & _MASK
        moves = self._world.get(table)
        if moves is None:
            steps = self._model.world_steps(self._tables.values[table])
            moves = self._world[table] = [self._move(step, _NOBODY) for step in steps]
        rest = state ^ table
        for move in moves:
            yield (rest if not move.lost else self._without(rest, move, _NOBODY)) | move.parts, move
        for me in range(self._count):
            place = (me + 1) * _BITS
            mine = state & (_MASK << place)
            kept = self._moves[me]
            moves = kept.get(table | mine)
            if moves is None:
                memory = self._memories.values[mine >> place]
                steps = self._model.instance_steps(me, self._tables.values[table], memory)
                moves = kept[table | mine] = [self._move(step, me) for step in steps]
            others = state ^ table ^ mine
            for move in moves:
                yield (others if not move.lost else self._without(others, move, me)) | move.parts, move

    def _move(self, step: Step, me: int) -> _Move:
        parts = self._tables.of(step.table)
        if me != _NOBODY:
            parts |= self._memories.of(step.memory) << ((me + 1) * _BITS)
        return _Move(parts, self._losses.of(step.lost), step.is_fault, step)

    def _without(self, others: int, move: _Move, me: int) -> int:
        """The memories of all others after they lost what the move takes from them."""
        changed = 0
        for other in range(self._count):
            if other != me:
                place = (other + 1) * _BITS
                memory = (others >> place) & _MASK
                pair = memory | move.lost << _BITS
                after = self._forgotten.get(pair)
                if after is None:
                    forgotten = self._model.forget(self._memories.values[memory], move.step.lost)
                    after = self._forgotten[pair] = self._memories.of(forgotten)
                changed |= after << place
        return changed

    # ------------------------------------------------------------ what was found

    def _counter_example(self, index: int, move: _Move, steps: int) -> Exploration:
        trace = [*self._way_to(index), move.step.words]
        return Exploration(len(self._order), steps, move.step.broken, trace)

    def _way_to(self, index: int) -> list[str]:
        """The words of the steps from the first state to this one."""
        way: list[str] = []
        while index:
            parent = self._parents[index]
            wanted = self._order[index]
            way.append(next(m.step.words for after, m in self._successors(self._order[parent]) if after == wanted))
            index = parent
        return way[::-1]

    def _stuck(self) -> int | None:
        """The first state from which no steps but faults lead to the end of every event."""
        finished = [self._model.is_finished(table) for table in self._tables.values]
        ends = bytearray(finished[state & _MASK] for state in self._order)
        ahead, limits = self._ahead, self._ends
        waiting = [index for index in range(len(ends) - 1, -1, -1) if not ends[index]]
        while waiting:
            left = []
            for index in waiting:
                for after in ahead[limits[index - 1] if index else 0 : limits[index]]:
                    if ends[after]:
                        ends[index] = 1
                        break
                else:
                    left.append(index)
            if len(left) == len(waiting):
                return left[-1]
            waiting = left
        return None
