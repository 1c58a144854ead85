"""Conflicts are solved by doing the same again: the database has rolled all of it back."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from aftercommit.execution import Fault

T = TypeVar("T")

#: How often a deadlock or a serialisation failure is answered by another try.
TRIES: Final = 5


async def retrying(attempt: Callable[[], Coroutine[Any, Any, T]], fault_of: Callable[[Exception], Fault]) -> T:
    """The value of the first attempt that meets no conflict. Colourless, as what it awaits."""
    for tries_left in reversed(range(TRIES)):
        try:
            return await attempt()
        except Exception as error:
            if not tries_left or fault_of(error) is not Fault.CONFLICT:
                raise
    raise AssertionError("unreachable")
