"""docs/relays.md: what it shows can be run, and what it names is there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from aftercommit.relays import Nats, RabbitMQ, RedisStreams, Relay
from aftercommit.relays.options import RelayOptions
from aftercommit.relays.testing import RelayContract

ROOT = Path(__file__).resolve().parent.parent.parent
GUIDE = (ROOT / "docs/relays.md").read_text()


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)


def test_what_it_shows_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Declaring connects to nobody."""
    monkeypatch.chdir(tmp_path)
    shown: dict[str, Any] = {"__name__": "shown"}
    for block in blocks():
        exec(compile(block, "docs/relays.md", "exec"), shown)  # noqa: S102
    outbox = shown["outbox"]
    assert set(outbox._roster.handlers) == {"rabbitmq", "nats", "redis-streams", "spare"}
    assert outbox._roster.handlers["spare"].bound_fallback is not None
    hooks = {name for name, value in vars(shown["TestOwnRelay"]).items() if not name.startswith("_")}
    assert RelayContract.__abstractmethods__ == hooks


def test_every_option_stands_there() -> None:
    told = set(re.findall(r"`(\w+)=", GUIDE))
    assert set(RelayOptions.__annotations__) - {"topic", "queue", "url"} <= told


@pytest.mark.parametrize("relay", [RabbitMQ, Nats, RedisStreams])
def test_the_signatures_are_those_of_the_relays(relay: type[Relay]) -> None:
    shown = re.search(rf"`{relay.__name__}\((\w+), (.*?), …\)`", GUIDE)
    assert shown is not None
    parameters = inspect.signature(relay).parameters.values()
    first, *others = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    assert shown[1] == first.name
    assert shown[2] == ", ".join(f"{each.name}={each.default!r}" for each in others).replace("'", '"')


def test_its_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", GUIDE):
        if target not in ("relays-kafka.md", "relays-http.md"):
            assert (ROOT / "docs" / target).exists(), target


def test_every_hook_stands_there() -> None:
    from aftercommit.relays.testing import RelayHooks

    ours = {"sending", "wire", "ids"}
    hooks = {name for name in vars(RelayHooks) if not name.startswith("_")} - ours
    assert hooks <= set(re.findall(r"^\| `(\w+)", GUIDE, re.MULTILINE))
