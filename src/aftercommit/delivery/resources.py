"""What handlers need while they are called: opened with the outbox, and closed when its handlers have ended."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from functools import partial

from aftercommit.events.log import Log
from aftercommit.events.outcome import Raised
from aftercommit.events.redact import error_text
from aftercommit.ports import Resource, Runtime, Task
from aftercommit.service import ENDS_WITHIN, Countdown

log = Log("aftercommit.delivery")


class Resources:
    """Those of one start. They are opened beside it: one whose server is away keeps nobody from starting."""

    def __init__(self, runtime: Runtime, resources: Sequence[Resource]) -> None:
        self._runtime = runtime
        #: Grows when a handler is declared; what comes late is opened by its first use.
        self._resources = resources
        self._opening: list[Task] = []

    def open(self) -> None:
        for each in self._resources:
            self._opening.append(self._runtime.spawn(f"aftercommit-open-{each.name}", partial(self._open, each)))

    async def _open(self, resource: Resource) -> None:
        await self._runtime.call(resource.open, context=copy_context())

    async def close(self) -> None:
        """When no handler runs any more. One that is still being opened is given up."""
        time = Countdown(self._runtime)
        if not all(task.has_ended for task in self._opening):
            self._runtime.interrupt()
        for task in self._opening:
            await task.join(time.left())
        self._opening.clear()
        for each in self._resources:
            if not each.is_open:
                continue
            result = await self._runtime.call(each.close, context=copy_context(), timeout=ENDS_WITHIN)
            if isinstance(result, Raised):
                log.warning("%s was not closed: %s", each.name, error_text(result.error))
