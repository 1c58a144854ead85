"""run(): a coroutine that never suspends is stepped once; one that does is refused at once."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from aftercommit.runtime.threads import run


class Suspension:
    """Awaiting it really suspends."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


async def three() -> int:
    return 3


def test_gives_the_value_of_a_coroutine_that_never_suspends() -> None:
    async def deep() -> int:
        return await three() + await three()

    assert run(deep()) == 6


def test_passes_errors_on() -> None:
    async def broken() -> None:
        raise LookupError("as it is")

    with pytest.raises(LookupError, match="as it is"):
        run(broken())


def test_passes_errors_on_that_are_no_exceptions() -> None:
    async def broken() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(broken())


def test_refuses_a_real_suspension_at_once_and_names_the_coroutine() -> None:
    steps = []

    async def suspends() -> None:
        try:
            steps.append("before")
            await Suspension()
            steps.append("never")
        finally:
            steps.append("cleaned up")

    coroutine = suspends()
    with pytest.raises(RuntimeError, match=r"suspends.*suspended in the blocking runtime"):
        run(coroutine)
    assert steps == ["before", "cleaned up"]


def test_refuses_a_suspension_deep_inside() -> None:
    async def inner() -> None:
        await Suspension()

    async def outer() -> None:
        await three()
        await inner()

    with pytest.raises(RuntimeError, match=r"outer.*suspended"):
        run(outer())
