"""Promise 8: what follows a failed event of a key, and a dead one, over two instances."""

from __future__ import annotations

import pytest

from tests.promises.ordered import CALM, OrderedFleet
from tests.promises.waiting import until

on_servers = pytest.mark.parametrize("fleet", ["postgres", "mariadb"], indirect=True)

NUMBERS = list(range(6))


class Pair:
    """Two instances, and somebody who writes."""

    def __init__(self, ordered: OrderedFleet, **options: object) -> None:
        ordered.times = CALM
        self.ordered = ordered
        self.members = [ordered.join(runtime, options=options) for runtime in ("threads", "asyncio")]
        ordered.until_owned(self.members)
        self.writer = ordered.writer()
        self.keys = [self._key_of(member) for member in self.members]

    def _key_of(self, member: object) -> str: ...


@on_servers
def test_placeholder(ordered: OrderedFleet) -> None: ...
