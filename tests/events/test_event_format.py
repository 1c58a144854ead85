"""The format of an envelope's payload: content type and version, as given or as the payload is."""

from __future__ import annotations

from typing import Any

import pytest

from aftercommit import EventEnvelope, InvalidEvent, InvalidName


def test_what_a_payload_is_when_nobody_says_more() -> None:
    text, binary = EventEnvelope("T", payload_json="{}"), EventEnvelope("T", payload_bytes=b"{}")
    assert (text.content_type, text.payload_version) == ("application/json", 1)
    assert (binary.content_type, binary.payload_version) == ("application/octet-stream", 1)


def test_format_and_version_are_kept_by_a_copy_unless_the_payload_is_new() -> None:
    event = EventEnvelope("T", payload_bytes=b"x", content_type="application/x-own", payload_version=3)
    copy = event.replace(key="k")
    assert (copy.content_type, copy.payload_version) == ("application/x-own", 3)
    new = event.replace(payload_json="{}")
    assert (new.content_type, new.payload_version) == ("application/json", 1)


@pytest.mark.parametrize("version", [0, -1, True, "1", 1.0, 1.5, None, 2**31])
def test_a_version_is_an_int_from_1_on(version: Any) -> None:
    with pytest.raises(InvalidEvent, match=r"(?s)payload_version is .*Fix: pass an int from 1 on"):
        EventEnvelope("T", payload_json="{}", payload_version=version)


@pytest.mark.parametrize("content_type", ["", 7, "x" * 129, "a\x00b"])
def test_a_content_type_is_a_name(content_type: Any) -> None:
    with pytest.raises(InvalidName, match="content_type"):
        EventEnvelope("T", payload_json="{}", content_type=content_type)
