"""The pytest plugin: fixtures for programs that use an outbox. It loads nothing of it before one is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import iscoroutinefunction
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from aftercommit.testing.outbox_test import AsyncOutboxTest, OutboxTest

_INI: Final = "aftercommit_outbox"

_WHICH: Final = """\
outbox_test does not know which outbox your program has. Say it in pyproject.toml:

    [tool.pytest.ini_options]
    aftercommit_outbox = "shop:outbox"

or in conftest.py:

    @pytest.fixture
    def outbox_under_test():
        return shop.outbox
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(_INI, "the outbox that outbox_test is for, as module:attribute", default="")


@pytest.fixture
def outbox_under_test(request: pytest.FixtureRequest) -> Any:
    """The outbox of the program: what the option aftercommit_outbox names, in Django the one of the default database.
    Override it where the tests know better."""
    named = str(request.config.getini(_INI))
    if named:
        return resolve_name(named)
    if "aftercommit.django" in sys.modules:
        return sys.modules["aftercommit.django"].outbox
    raise pytest.UsageError(_WHICH)


@pytest.fixture
def outbox_test(request: pytest.FixtureRequest, outbox_under_test: Any) -> Iterator[OutboxTest | AsyncOutboxTest]:
    """The program's own outbox on a temporary SQLite file, with a clock that stands still until the test moves it on.
    In an `async def` test over an AsyncOutbox it is an AsyncOutboxTest, else an OutboxTest."""
    from aftercommit.testing.outbox_test import of_test  # noqa: PLC0415  (nothing is loaded for those who do without)

    with of_test(outbox_under_test, is_async=iscoroutinefunction(request.function)) as kit:
        yield kit
