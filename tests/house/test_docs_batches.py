"""The example of handlers of batches runs as it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from aftercommit import BatchResult, EventMetadata, FailureContext, NoRetry, Outbox
from tests.support import Collector

HANDLERS = Path(__file__).parents[2] / "docs/handlers.md"


@dataclass
class OrderPlaced:
    order_id: int


class Search:
    def __init__(self) -> None:
        self.asked = Collector()

    def index(self, documents: list[tuple[str, int]]) -> list[str]:
        self.asked.add([number for _, number in documents])
        return ["too long" if number == 2 else "ok" for _, number in documents]


def test_the_example_of_batches_runs() -> None:
    (example,) = re.findall(r"## Batches\n.*?```python\n(.*?)```", HANDLERS.read_text(), re.DOTALL)
    outbox, search = Outbox("sqlite://", retry_policy=NoRetry()), Search()
    names = {
        "outbox": outbox,
        "search": search,
        "OrderPlaced": OrderPlaced,
        "BatchResult": BatchResult,
        "EventMetadata": EventMetadata,
        "FailureContext": FailureContext,
    }
    exec(compile(example, "docs/handlers.md", "exec", dont_inherit=True), names)  # noqa: S102
    with outbox.transaction():
        for number in range(4):
            outbox.write(OrderPlaced(number))
    assert outbox.drain().delivered == 4
    assert search.asked == [[0, 1, 2, 3]]
