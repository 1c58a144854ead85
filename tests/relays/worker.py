"""A process that relays until it is killed: `python -m tests.relays.worker STORE BROKER QUEUE`."""

from __future__ import annotations

import logging
import signal
import sys

from aftercommit import Outbox
from aftercommit.relays import RabbitMQ

if __name__ == "__main__":
    store, broker, queue = sys.argv[1:]
    logging.basicConfig(level=logging.ERROR)
    outbox = Outbox.ordered(
        store, lock_timeout="2s", stale_timeout="3s", heartbeat_interval="500ms", poll_interval="1s"
    )
    outbox.relay(RabbitMQ(broker, connect_timeout="2s", confirm_timeout="2s"), to=queue)
    with outbox:
        signal.sigwait({signal.SIGTERM})
