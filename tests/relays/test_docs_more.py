"""The pages of these relays: their examples run as they stand, with no broker behind them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["relays-kafka.md", "relays-http.md", "relays-aws.md"])
def test_the_examples_declare_relays(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL):
        exec(compile(block, name, "exec"), names)  # noqa: S102
    names["outbox"].close()  # type: ignore[attr-defined]
