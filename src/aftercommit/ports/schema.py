"""What is there of an outbox's tables, as a store tells it and people ask for it."""

from __future__ import annotations

import msgspec

from aftercommit.errors import OutboxError


class SchemaStatus(msgspec.Struct, frozen=True):
    """The schema of an outbox as it is, beside what this release needs. Looking changes nothing."""

    #: Of the tables that are there; 0 when there are none, or nothing tells.
    version: int
    #: What this release works with.
    needed: int
    #: What the version should have and is not there, or cannot be used as it is: "index outbox_event_order" …
    missing: tuple[str, ...] = ()
    #: What start() would raise, with its fix; None: it would start.
    problem: OutboxError | None = None

    @property
    def fits(self) -> bool:
        """Whether an outbox of this release starts on it."""
        return self.problem is None

    @property
    def is_behind(self) -> bool:
        """Whether an upgrade would change it. A newer one that serves this release is not behind."""
        return self.version < self.needed
