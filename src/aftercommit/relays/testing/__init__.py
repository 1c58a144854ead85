"""What every relay promises, as tests: bind the hooks of `RelayHooks`, inherit, and let pytest collect the class.

class TestMyRelay(RelayContract):
    ...  # see `hooks.RelayHooks` and docs/relays.md
"""

from __future__ import annotations

from aftercommit.relays.testing.contract import RelayContract
from aftercommit.relays.testing.hooks import RelayHooks, Sending, Stored
from aftercommit.relays.testing.wire import Wire

__all__ = ["RelayContract", "RelayHooks", "Sending", "Stored", "Wire"]
