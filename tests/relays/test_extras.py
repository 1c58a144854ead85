"""A relay whose library is not installed says which extra brings it."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from aftercommit import MissingDriver


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [
        ("kafka.relay", "confluent_kafka", "kafka"),
        ("webhooks.relay", "httpx", "webhook"),
        ("webhooks.relay", "standardwebhooks", "webhook"),
        ("aws.sqs", "boto3", "aws"),
        ("aws.sns", "boto3", "aws"),
    ],
)
def test_the_extra_is_named(module: str, library: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.startswith(("aftercommit.relays.", f"{library}."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingDriver, match="not installed") as missing:
        import_module(f"aftercommit.relays.{module}")
    assert f"aftercommit[{extra}]" in missing.value.fix
