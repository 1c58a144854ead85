"""The runtime of a test's process under asyncio."""

from __future__ import annotations

from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.testing.process import Still


class StillTasks(Still, AsyncioRuntime):
    """For AsyncOutbox: async handlers run on the loop of the test."""
