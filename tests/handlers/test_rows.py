"""What is remembered of who receives an event is what would be found anew."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from aftercommit import EventEnvelope, HandlerSet, any_event
from aftercommit.events.payloads import PayloadTypes
from aftercommit.handlers.listeners import DefaultListenerRegistry
from aftercommit.handlers.routing import OfKind, Router

EVENTS = [EventEnvelope(name, payload_json=text, aggregate_type=of) for name in "AB" for text in "12" for of in "XY"]


def is_one(event: EventEnvelope) -> bool:
    return event.payload == "1"


#: What a program may add while it writes.
ADDED = st.one_of(
    st.tuples(st.just("listener"), st.sampled_from("AB"), st.sampled_from("XY")),
    st.tuples(st.just("handler"), st.sampled_from("AB"), st.none() | st.sampled_from("XY")),
    st.tuples(st.just("picky"), st.sampled_from("AB"), st.none()),
)


@given(st.lists(ADDED | st.sampled_from(EVENTS), max_size=12))
def test_who_receives_an_event_is_asked_anew_when_somebody_was_added(steps: list[Any]) -> None:
    registry, handlers, payloads = DefaultListenerRegistry(), HandlerSet(), PayloadTypes()
    router, known = Router(registry, handlers._roster, payloads), set()
    for number, step in enumerate(steps):
        match step:
            case EventEnvelope():
                for event in (step, *EVENTS):
                    routes = Router(registry, handlers._roster, payloads).routes_of(event)
                    ids = [route.id for route in routes]
                    found = router.rows_of(event)
                    assert list(found) == (ids if len(ids) > 1 else [""] * len(ids))
                    others = [each for each in EVENTS if each.event_type == event.event_type]
                    if type(found) is OfKind:  # for all of its kind
                        same = [each for each in others if each.aggregate_type == event.aggregate_type]
                        assert {tuple(router.rows_of(each)) for each in same} == {tuple(found)}
            case ("listener", name, of) if (of, name) not in known:
                known.add((of, name))
                registry.register(of, name, print)
            case ("handler", name, of):
                options = {} if of is None else {"aggregate_type": of}
                handlers.handler(name, id=f"h{number}", **options)(take)
            case ("picky", *_):
                handlers.handler(any_event, id=f"h{number}", supports=is_one)(take)


def take(event: EventEnvelope) -> None: ...
