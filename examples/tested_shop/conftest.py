"""Which outbox the tests are about. `aftercommit_outbox = "shop:outbox"` in the settings of pytest says the same."""

from __future__ import annotations

import pytest
from shop import charged, mails, outbox, tickets

from aftercommit import Outbox


@pytest.fixture
def outbox_under_test() -> Outbox:
    return outbox


@pytest.fixture(autouse=True)
def _as_new() -> None:
    charged.clear()
    mails.clear()
    tickets.clear()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
