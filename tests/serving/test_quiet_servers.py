"""Workers that nobody asks for anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from aftercommit import Outbox
from tests.serving.kit import Server
from tests.serving.orders import OrderPlaced

HOOK = f"--config={Path(__file__).with_name('gunicorn_hook.py')}"


@pytest.mark.parametrize("server", [("flask", f"gunicorn --preload {HOOK}", "sqlite")], indirect=True, ids=" ".join)
def test_a_hook_starts_each_worker_before_its_first_request(server: Server) -> None:
    with Outbox.writer_only(server.url) as outbox, outbox.transaction():
        outbox.write(OrderPlaced(7))
    ((worker,),) = server.until_noted("effect", [7]).values()
    assert worker != server.master
    server.until_settled()
