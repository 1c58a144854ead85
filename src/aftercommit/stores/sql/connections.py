"""What all executors agree on: how many connections, how long to wait for one, how often to try again."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aftercommit.stores.sql.execution import Fault

T = TypeVar("T")

#: Idle connections that an executor keeps.
KEPT: Final = 16

#: Connections that a pool of the outbox's own opens at most; transactions of the user's count, too.
LARGEST: Final = 20

#: Seconds to wait for a free one.
PATIENCE: Final = 10.0

#: How often a deadlock or a serialisation failure is answered by another try.
TRIES: Final = 5

#: Connections of a parent process. Closing them here could undo what the parent does on them; they are kept for ever.
abandoned: Final[list[object]] = []


async def retrying(attempt: Callable[[], Coroutine[Any, Any, T]], fault_of: Callable[[Exception], Fault]) -> T:
    """The value of the first attempt that meets no conflict: the database has rolled all of it back, and the same again
    is right. Colourless, as what it awaits."""
    for tries_left in reversed(range(TRIES)):
        try:
            return await attempt()
        except Exception as error:
            if not tries_left or fault_of(error) is not Fault.CONFLICT:
                raise
    raise AssertionError("unreachable")
