"""Redis and Valkey keep the contract of stores, in both colours."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.testing import StoreConformance
from aftercommit.testing.claiming import ClaimingContract
from aftercommit.testing.fleet import FleetContract
from aftercommit.testing.heads import HeadsContract
from aftercommit.testing.purging import PurgingContract
from tests.redis_servers import valkey_answers
from tests.stores.kit import run_in
from tests.stores.redis_kit import Keys


class RedisHooks:
    """A store on a server that others use as well."""

    server = "redis_url"
    skips_locked = False  # no transaction ever holds a row: each script is over before another begins

    @pytest.fixture(autouse=True)
    def database(self, request: pytest.FixtureRequest, colour: Colour) -> Iterator[None]:
        self.colour = colour
        self.keys = Keys(request.getfixturevalue(self.server))
        yield
        self.keys.close()

    def make_store(self, *, table: str = "outbox_event", **options: Any) -> Any:
        # What is done is kept, unless a test asks for the contrary: it wants to see it.
        options = {"delete_completed": False, "table": self.keys.named(table), **options}
        return open_store(self.keys.url, self.colour, **options)

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return run_in(self.colour, coroutine)

    def rows(self) -> list[dict[str, Any]]:
        return self.keys.rows()

    def change(self, event_id: str | None = None, **columns: Any) -> None:
        self.keys.change(event_id, **columns)

    def now(self) -> int:
        return self.keys.now()


@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
class TestRedis(RedisHooks, StoreConformance):
    """The whole contract."""


@pytest.mark.parametrize("colour", [Colour.BLOCKING], ids=lambda colour: colour.value)
class TestValkey(RedisHooks, ClaimingContract, PurgingContract, HeadsContract, FleetContract):
    """Claims, order, purges and the fleet in every run, in one colour: it is for the server, which knows none. All of
    it in the long ones."""

    server = "valkey_url"


@pytest.mark.slow
@pytest.mark.parametrize("colour", list(Colour), ids=lambda colour: colour.value)
class TestAllOnValkey(RedisHooks, StoreConformance):
    """The whole contract."""

    server = "valkey_url"


def test_valkey_itself_is_no_redis(valkey_url: str) -> None:
    assert valkey_answers(valkey_url)
