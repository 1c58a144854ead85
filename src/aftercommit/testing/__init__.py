"""Tests for people who use the outbox, and for people who extend it.

The kit for programs: `OutboxTest`, `AsyncOutboxTest`, and the fixture `outbox_test` of the pytest plugin, which gives
one of the two. The suite that every event store passes, which needs pytest:

class TestMyStore(StoreConformance):
    ...  # five hooks, see `hooks.StoreHooks` and docs/writing-a-store.md; a store over SQL has SqlConformance beside it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aftercommit.testing.conformance import CoreConformance as CoreConformance
    from aftercommit.testing.conformance import OrderConformance as OrderConformance
    from aftercommit.testing.conformance import SqlConformance as SqlConformance
    from aftercommit.testing.conformance import StoreConformance as StoreConformance
    from aftercommit.testing.hooks import StoreHooks as StoreHooks
    from aftercommit.testing.hooks import played as played
    from aftercommit.testing.outbox_test import AsyncOutboxTest as AsyncOutboxTest
    from aftercommit.testing.outbox_test import OutboxTest as OutboxTest
    from aftercommit.testing.process import Drained as Drained
    from aftercommit.testing.process import Failure as Failure
    from aftercommit.testing.sql import SqlHooks as SqlHooks
    from aftercommit.testing.written import Written as Written

__all__ = [
    "AsyncOutboxTest",
    "CoreConformance",
    "Drained",
    "Failure",
    "OrderConformance",
    "OutboxTest",
    "SqlConformance",
    "SqlHooks",
    "StoreConformance",
    "StoreHooks",
    "Written",
    "played",
]


def __getattr__(name: str) -> Any:
    """Tests of a program load the kit and not the suite, and those of a store the suite and not the kit."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("AsyncOutboxTest", "OutboxTest", "Drained", "Failure", "Written"):
        from aftercommit.testing import outbox_test as module  # noqa: PLC0415
    else:
        _explain_asserts()
        from aftercommit.testing import suite as module  # type: ignore[no-redef]  # noqa: PLC0415
    return getattr(module, name)


def _explain_asserts() -> None:
    """Before the suite is imported: a failed assert of it is then explained like one in a test file."""
    import pytest  # noqa: PLC0415  (the kit works without it)

    pytest.register_assert_rewrite(
        *(
            f"{__name__}.{module}"
            for module in (
                *("kit", "hooks", "writing", "scheduling", "fidelity", "claiming", "sharing", "settling", "fencing"),
                *("records", "purging", "heads", "ordering", "passing", "runs", "fleet", "naming", "sql"),
                "conformance",
            )
        )
    )
