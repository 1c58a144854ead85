"""The agenda as a model: everybody's steps in every order. What must hold is that whoever was told of is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.explorer import Step
from tests.model.waking import others
from tests.model.waking.agenda import Rules
from tests.model.waking.bugs import Slip
from tests.model.waking.poller import look
from tests.model.waking.state import Memory, Status, Table, World

_STEPS = (others.write, others.fall_due, look, others.work, others.settle, others.lose)


class WakingProtocol:
    """One process in a small world, by the rules or with slips."""

    def __init__(self, world: World, *slips: Slip) -> None:
        self.rules = Rules(world, frozenset(slips))

    def start(self) -> tuple[Table, Sequence[Memory]]:
        world = self.rules.world
        rows = (Status.FREE,) * world.written + (Status.UNWRITTEN,) * (len(world.keys) - world.written)
        return Table(rows, world.budget), [Memory()]

    def world_steps(self, table: Table) -> Iterator[Step]:
        return others.pass_time(table)

    def instance_steps(self, me: int, table: Table, memory: Memory) -> Iterator[Step]:
        for steps in _STEPS:
            yield from steps(self.rules, table, memory)

    def forget(self, memory: Memory, lost: object) -> Memory:
        return memory

    def renamed(self, table: Table, names: Sequence[int]) -> Table:
        return table

    def is_finished(self, table: Table) -> bool:
        return all(status is Status.DONE for status in table.rows)
