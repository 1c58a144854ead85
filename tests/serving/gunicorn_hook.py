"""A gunicorn.conf.py that starts the outbox of each worker before its first request."""

from __future__ import annotations

from typing import Any


def post_worker_init(worker: Any) -> None:
    from tests.serving.flask_shop import outbox

    outbox.start()
