"""`application` of a server that speaks WSGI: each process that serves delivers, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.core.wsgi import get_wsgi_application as djangos

from aftercommit.django.conf import aliases
from aftercommit.django.outboxes import outbox_for


def get_wsgi_application() -> Callable[[Any, Any], Iterable[bytes]]:
    """Django's own, which starts the outboxes of AFTERCOMMIT with the first request of a process.

    Not before: a server may load it in one process and fork those that serve. They are closed when a process ends.
    """
    application = djangos()
    outboxes = [outbox_for(alias) for alias in aliases()]

    def serve(environ: Any, start_response: Any) -> Iterable[bytes]:
        for outbox in outboxes:
            outbox.start()
        return application(environ, start_response)  # type: ignore[no-any-return]

    return serve
