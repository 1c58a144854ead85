"""Context: captured from providers, stored among the headers, taken apart again, current while an event is handled."""

from __future__ import annotations

import logging
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import InvalidHeaders, InvalidOption
from aftercommit.events.context import (
    PREFIX,
    TRACE_NAMES,
    Providers,
    as_headers,
    checked,
    current_context,
    refuse_reserved,
    restore,
    split,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def says(**entries: str) -> Any:
    return lambda: entries


def raises(error: BaseException) -> Any:
    def provider() -> dict[str, str]:
        raise error

    return provider


# ---------------------------------------------------------------- providers


def test_providers_are_merged_and_the_last_one_wins() -> None:
    """TC-329, TC-330, TC-332."""
    assert Providers().capture() == {}
    assert Providers([says(a="1")]).capture() == {"a": "1"}
    three = Providers([says(a="1", b="1"), says(a="2", c=""), says(a="3", d="3", e="3")])
    assert three.capture() == {"a": "3", "b": "1", "c": "", "d": "3", "e": "3"}


def test_providers_are_asked_at_every_capture() -> None:
    numbers = iter("12")
    providers = Providers([lambda: {"n": next(numbers)}])
    assert [providers.capture(), providers.capture()] == [{"n": "1"}, {"n": "2"}]


NAMES = st.sampled_from("abcd")
MAPS = st.dictionaries(NAMES, st.text(max_size=3))


@given(st.lists(MAPS), st.lists(MAPS))
def test_capture_is_the_union_in_order(first: list[dict[str, str]], second: list[dict[str, str]]) -> None:
    def capture(maps: list[dict[str, str]]) -> dict[str, str]:
        return Providers([lambda each=each: each for each in maps]).capture()  # type: ignore[misc]

    assert capture(first + second) == capture(first) | capture(second)


async def later() -> dict[str, str]:
    return {"a": "1"}


@pytest.mark.parametrize(
    "broken",
    [
        raises(ValueError("x")),
        raises(AttributeError("None")),
        lambda: None.missing,  # type: ignore[attr-defined]
        lambda: 7,
        lambda: {"a": 7},
        lambda: {7: "a"},
        lambda: {"": "a"},
        lambda: {"a": "\ud800"},
        lambda: ["a"],
        lambda: [later()][0],
        lambda required: {},
    ],
)
def test_a_provider_that_fails_is_left_out_and_logged(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    """TC-331."""
    assert Providers([says(a="1", b="1"), broken, says(b="2")]).capture() == {"a": "1", "b": "2"}
    assert Providers([broken, broken]).capture() == {}
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert "left out" in caplog.text


def test_a_provider_that_says_nothing_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    assert Providers([lambda: None, says(a="1")]).capture() == {"a": "1"}
    assert not caplog.records


def test_a_provider_is_logged_when_it_begins_to_fail_and_not_at_every_write(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = [7, 7, {}, 7]
    providers = Providers([lambda: answers.pop(0)])
    counts = []
    for _ in range(4):
        providers.capture()
        counts.append(len(caplog.records))
    assert counts == [1, 1, 1, 2]


def test_an_order_to_stop_is_no_failure_of_a_provider() -> None:
    with pytest.raises(KeyboardInterrupt):
        Providers([raises(KeyboardInterrupt())]).capture()


@pytest.mark.parametrize("provider", [None, "name", {"a": "1"}, later])
def test_what_is_no_plain_function_is_refused_as_a_provider(provider: Any) -> None:
    with pytest.raises(InvalidOption, match=r"(?s)is no plain function.*Fix: .*context_providers=\["):
        Providers([provider])


# ---------------------------------------------------------------- among the headers


TEXTS = st.dictionaries(st.text(min_size=1) | st.sampled_from(sorted(TRACE_NAMES)), st.text())
OWN = TEXTS.map(lambda headers: {name: value for name, value in headers.items() if not name.startswith(PREFIX)})


@given(OWN, TEXTS)
def test_what_is_joined_is_taken_apart_again(headers: dict[str, str], context: dict[str, str]) -> None:
    """Names of trace context alone are both."""
    back, carried = split({**headers, **as_headers(context)})
    trace = {name: value for name, value in (headers | context).items() if name in TRACE_NAMES}
    assert back == headers | trace
    assert carried == trace | context


def test_context_has_a_prefix_and_trace_context_its_own_names() -> None:
    stored = as_headers({"tenant": "acme", "traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "k=v"})
    assert stored == {"ac-context-tenant": "acme", "traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "k=v"}
    assert split({"h": "v", **stored}) == (
        {"h": "v", "traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "k=v"},
        {"tenant": "acme", "traceparent": TRACEPARENT, "tracestate": "a=1", "baggage": "k=v"},
    )
    assert split({}) == ({}, {})


def test_nobody_can_change_what_was_taken_apart() -> None:
    for part in split({"h": "v", "ac-context-a": "1"}):
        with pytest.raises(TypeError):
            part["x"] = "y"  # type: ignore[index]


def test_the_prefix_is_reserved_for_context() -> None:
    refuse_reserved({"h": "v", "x-ac-context-": "fine"})
    with pytest.raises(
        InvalidHeaders, match=r"(?s)'ac-context-tenant' begins with .*Fix: pass context=\{'tenant': …\}"
    ):
        refuse_reserved({"h": "v", "ac-context-tenant": "acme"})


@pytest.mark.parametrize(
    "context", [7, ["a"], {"a": 7}, {"a": None}, {7: "a"}, {None: "a"}, {"": "a"}, {"a": "\ud800"}]
)
def test_context_maps_strings_to_strings(context: Any) -> None:
    with pytest.raises(InvalidHeaders, match=r"(?s)context .*Fix: "):
        checked(context)


# ---------------------------------------------------------------- the current one


def test_context_is_current_only_where_it_was_restored() -> None:
    assert current_context() == {}
    one, other = copy_context(), copy_context()
    one.run(restore, {"a": "1"})
    other.run(restore, {"b": "2"})
    assert one.run(current_context) == {"a": "1"}
    assert other.run(current_context) == {"b": "2"}
    assert current_context() == {}
    with pytest.raises(TypeError):
        one.run(current_context)["a"] = "2"  # type: ignore[index]


def test_the_current_context_can_be_carried_on() -> None:
    """As a provider: what a handler writes then has the context of its own event."""
    inside = copy_context()
    inside.run(restore, {"traceparent": TRACEPARENT})
    assert inside.run(Providers([current_context]).capture) == {"traceparent": TRACEPARENT}
