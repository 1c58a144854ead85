"""The lease and partition protocol as a model: every step that an instance or its surroundings may take, and what must
hold in every state. The rules are those of the design; each has its place in the module that its words point to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from tests.model import claiming, delivering, settling, surroundings, writing
from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import Rules, World, forget, instance, name_of
from tests.model.state import GONE, Lost, Memory, Partition, Phase, Row, Status, Table

Owned = TypeVar("Owned", Row, Partition)

_WORLD_STEPS = (surroundings.write, surroundings.pass_time, surroundings.operate)

_INSTANCE_STEPS = (
    claiming.write_hot,
    writing.write_first,
    claiming.claim,
    claiming.arrive,
    delivering.start,
    delivering.live,
    delivering.end,
    settling.settle,
    settling.renew,
    surroundings.stall,
    surroundings.share,
    delivering.crash,
)


class LeaseProtocol:
    """One small world under the protocol, or under the protocol with bugs."""

    def __init__(self, world: World, *bugs: Bug) -> None:
        self.rules = Rules(world, frozenset(bugs))

    def start(self) -> tuple[Table, Sequence[Memory]]:
        world = self.rules.world
        count = len(world.keys)
        rows = tuple(Row(Status.NEW if place < world.written else Status.UNWRITTEN) for place in range(count))
        partition = Partition() if world.has_partition else None
        nothing = (None,) * count
        memory = Memory(nothing, nothing, nothing, believes=not world.has_partition)
        return Table(rows, world.budget, partition), [memory] * world.instances

    def world_steps(self, table: Table) -> Iterator[Step]:
        for steps in _WORLD_STEPS:
            yield from steps(self.rules, table)

    def instance_steps(self, me: int, table: Table, memory: Memory) -> Iterator[Step]:
        problem = self._what_is_wrong(me, table, memory)
        if problem:
            yield Step("and so it is", table, memory, broken=problem)
            return
        for steps in _INSTANCE_STEPS:
            yield from steps(self.rules, me, table, memory)

    def forget(self, memory: Memory, lost: Lost) -> Memory:
        return forget(memory, lost)

    def renamed(self, table: Table, names: Sequence[int]) -> Table:
        rows = tuple(_owned_by(row, row.owner, names) for row in table.rows)
        partition = table.partition and _owned_by(table.partition, table.partition.owner, names)
        lock = None if table.lock is None else names[table.lock]
        return table._replace(rows=rows, partition=partition, lock=lock)

    def is_finished(self, table: Table) -> bool:
        """Every event is DONE or DEAD, or waits behind a dead one of its key, or hangs with all that is behind it."""
        hung = {later for place in self.rules.world.hung for later in (place, *self.rules.later(place))}
        return all(
            row.status in (Status.DONE, Status.DEAD) or place in hung or self._is_behind_dead(table, place)
            for place, row in enumerate(table.rows)
        )

    def _is_behind_dead(self, table: Table, place: int) -> bool:
        dead = [other for other in self.rules.earlier(place) if table.rows[other].status is Status.DEAD]
        return self.rules.world.blocks and table.rows[place].status is not Status.UNWRITTEN and bool(dead)

    # ------------------------------------------------------------ what must hold

    def _what_is_wrong(self, me: int, table: Table, memory: Memory) -> str:
        """The promise that a state breaks, as far as one instance and the table show it."""
        for place, row in enumerate(table.rows):
            if row.status is Status.DONE and not row.had_effect:
                return f"nothing lost: {name_of(place)} is DONE and was never delivered"
            if row.status is Status.DEAD and self.rules.world.has_innocents and place not in self.rules.world.killers:
                return f"killers end: {name_of(place)} is DEAD and has killed nobody"
            is_known = memory.copies[place] is not None or memory.arriving[place] is not None
            is_mine = row.owner == me and row.is_unfinished
            if is_mine and not is_known and not self.rules.world.loses_answers:
                return f"one holder: {instance(me)} holds {name_of(place)} and does not know it"
        return self._what_is_wrong_in_memory(me, memory)

    def _what_is_wrong_in_memory(self, me: int, memory: Memory) -> str:
        running = [
            place for place, copy in enumerate(memory.copies) if copy is not None and copy.phase is Phase.DELIVERING
        ]
        for place in running:
            copy = memory.copies[place]
            if copy is not None and not copy.is_late and not copy.holds:
                return f"one holder: {instance(me)} delivers {name_of(place)} in time and is not its holder"
            if any(other in running for other in self.rules.later(place)):
                return f"order: {instance(me)} delivers two events of a key at once"
        return ""


def _owned_by(thing: Owned, owner: int | None, names: Sequence[int]) -> Owned:
    return thing if owner is None or owner == GONE else thing._replace(owner=names[owner])
