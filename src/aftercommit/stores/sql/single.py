"""Single statements by way of whole transactions, where a driver gains nothing from a shorter way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from aftercommit.ports import Tx

T = TypeVar("T")


class SingleStatements(ABC):
    """`fetch` and `execute` of an executor that has `transact`."""

    @abstractmethod
    async def transact(self, work: Callable[[Tx], Coroutine[Any, Any, T]], *, writes: bool = True) -> T: ...

    async def fetch(self, sql: str, parameters: Sequence[object] = (), *, writes: bool = True) -> list[Any]:
        return await self.transact(lambda tx: tx.fetch(sql, parameters), writes=writes)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        return await self.transact(lambda tx: tx.execute(sql, parameters))
