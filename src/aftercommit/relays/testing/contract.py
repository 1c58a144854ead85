"""What every relay promises, whatever broker lies behind it."""

from __future__ import annotations

import json
import threading
from base64 import b64decode
from datetime import UTC, datetime
from itertools import chain

from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import DeadLetter, Unavailable
from aftercommit.relays.headers import percent_encoded
from aftercommit.relays.testing.outages import OutageContract, events

#: JSON that nobody may write anew: spaces, order, numbers and escapes are somebody's own.
ODD_JSON = '{ "b":1.0,"a" : [ 1e3,"\\u00e9 é" ], "big": 12345678901234567890 }'


class RelayContract(OutageContract):
    """All of it. Inherit, bind `address`, `make_relay`, `make_place` and `stored`, and what else the broker has."""

    # ------------------------------------------------------------ what arrives

    def test_what_is_confirmed_is_stored_byte_for_byte(self) -> None:
        place = self.make_place()
        given = [
            EventEnvelope("OrderPlaced", payload_json=ODD_JSON),
            EventEnvelope("OrderPlaced", payload_bytes=bytes(range(256)), content_type="application/x-odd"),
            EventEnvelope("OrderPlaced", payload_json='"x"' + " " * 200_000),
        ]
        with self.sending(place) as relay:
            assert relay.send(*given) == [None] * 3
        found = {each.id: each for each in self.stored(place)}
        assert len(found) == 3
        for event in given:
            assert found[event.event_id].body == event.payload_bytes
            assert found[event.event_id].content_type == event.content_type

    def test_an_event_goes_out_as_a_cloud_event(self) -> None:
        place = self.make_place()
        event = EventEnvelope(
            "OrderPlaced",
            payload_json=ODD_JSON,
            aggregate_type="Order",
            aggregate_id=7,
            tenant_id="acme",
            key="k-7",
            occurred_at=datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
            headers={"x-mine": "1", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
        )
        with self.sending(place, source="/shop") as relay:
            assert relay.send(event) == [None]
        (found,) = self.stored(place)
        assert dict(found.attributes) == self.attributes_of(event)
        assert found.headers["x-mine"] == "1"
        assert found.headers["traceparent"] == event.headers["traceparent"]

    def attributes_of(self, event: EventEnvelope) -> dict[str, str]:
        return {
            "specversion": "1.0",
            "id": event.event_id,
            "source": "/shop",
            "type": "OrderPlaced",
            "subject": "7",
            "time": "2026-01-02T03:04:05.000678Z",
            "partitionkey": "k-7",
            "aggregatetype": "Order",
            "tenantid": "acme",
            "traceparent": event.headers["traceparent"],
        }

    def test_attributes_arrive_whatever_is_in_them(self) -> None:
        place = self.make_place()
        given = [
            EventEnvelope(name, payload_json="1", key="a\r\nb")
            for name in ("Größe ✓", "line\nbreak", '100 % "sure"', " space ", "a: b\r\nid: 7")
        ]
        with self.sending(place) as relay:
            assert relay.send(*given) == [None] * len(given)
        found = self.stored(place)
        assert sorted(each.attributes["type"] for each in found) == sorted(event.event_type for event in given)
        assert {each.attributes["subject"] for each in found} == {"a\r\nb"}

    def test_structured_messages_hold_everything(self) -> None:
        place = self.make_place()
        given = [
            EventEnvelope("OrderPlaced", payload_json=ODD_JSON, key="k"),
            EventEnvelope("OrderPlaced", payload_bytes=b"\x00\xff", content_type="application/x-odd"),
        ]
        with self.sending(place, format="structured", source="/shop") as relay:
            assert relay.send(*given) == [None] * 2
        found = {each.id or json.loads(each.body)["id"]: each for each in self.stored(place)}
        text, binary = (found[event.event_id] for event in given)
        assert ODD_JSON.encode() in text.body
        assert json.loads(text.body)["data"] == json.loads(ODD_JSON)
        assert json.loads(text.body)["type"] == "OrderPlaced"
        assert b64decode(json.loads(binary.body)["data_base64"]) == b"\x00\xff"
        assert json.loads(binary.body)["datacontenttype"] == "application/x-odd"
        assert {each.content_type for each in found.values()} == {"application/cloudevents+json"}
        assert not any(each.attributes for each in found.values())

    def test_plain_messages_are_no_cloud_events(self) -> None:
        place = self.make_place()
        event = EventEnvelope("OrderPlaced", payload_json=ODD_JSON, headers={"x-mine": "1"})
        with self.sending(place, format="plain") as relay:
            assert relay.send(event) == [None]
        (found,) = self.stored(place)
        assert (found.body, dict(found.attributes)) == (ODD_JSON.encode(), {})
        assert found.headers["x-mine"] == "1"

    # ------------------------------------------------------------ headers

    def test_what_the_outbox_keeps_among_the_headers_stays_at_home(self) -> None:
        place = self.make_place()
        event = EventEnvelope.restore(
            *("01J00000000000000000000000", "OrderPlaced", "{}", "application/json", 1, datetime.now(UTC)),
            *("__GLOBAL__", None, None, None),
            {"ac-context-user": "Bobby", "x-mine": "1"},
            None,
        )
        with self.sending(place) as relay:
            assert relay.send(event) == [None]
        (found,) = self.stored(place)
        assert found.headers["x-mine"] == "1"
        assert "Bobby" not in repr(found)

    def test_a_header_arrives_as_it_is_or_encoded_or_is_refused_and_never_becomes_another(self) -> None:
        place = self.make_place()
        hostile = {
            "x-a": "1\r\nx-evil: 2",
            "x-b": "1\nx-evil: 2",
            "x-c": "a\x00b",
            "x-d": "Größe ✓",
            "x-e": " spaces ",
            "x f: 1\r\nx-evil": "2",
            "x-" + "long" * 100: "1",
            "x-g": "a" * 5000,
        }
        given = [EventEnvelope("OrderPlaced", payload_json="1", headers={name: hostile[name]}) for name in hostile]
        harmless = EventEnvelope("OrderPlaced", payload_json="1", headers={"x-mine": "1"})
        with self.sending(place) as relay:
            answers = relay.send(*given, harmless)
        found = {each.id: each for each in self.stored(place)}
        assert harmless.event_id in found
        assert answers[-1] is None
        for event, answer in zip(given, answers, strict=False):
            ((name, value),) = event.headers.items()
            if answer is None:
                assert found[event.event_id].headers[name] in (value, percent_encoded(value))
            else:
                assert isinstance(answer, DeadLetter), answer
                assert event.event_id not in found
        assert not any(name.lower() == "x-evil" for each in found.values() for name in each.headers)

    # ------------------------------------------------------------ order

    def test_messages_of_one_key_are_stored_in_order(self) -> None:
        place = self.make_place()
        given = events(60, keys=5)
        with self.sending(place, ordered=True) as relay:
            for start in range(0, 60, 20):
                assert relay.send(*given[start : start + 20]) == [None] * 20
        found = self.ids(place)
        assert sorted(map(str, found)) == sorted(event.event_id for event in given)
        if self.keeps_order:
            for key in {event.key for event in given}:
                ours = [event.event_id for event in given if event.key == key]
                assert [each for each in found if each in ours] == ours

    # ------------------------------------------------------------ what is not taken

    def test_a_message_that_nobody_would_get_fails_alone(self) -> None:
        place, nowhere = self.make_place(), self.make_nowhere()
        given = events(60)
        lost = {event.event_id for event in given[4::3]}
        with self.sending(lambda event: nowhere if event.event_id in lost else place) as relay:
            for _ in range(2):  # again, when it is known that nobody is there
                answers = relay.send(*given)
                assert [answer is None for answer in answers] == [event.event_id not in lost for event in given]
                assert not any(isinstance(answer, Unavailable) for answer in answers)
                assert str(answers[4])
        assert sorted(map(str, self.ids(place))) == sorted(
            event.event_id for event in given for _ in range(self.copies(2)) if event.event_id not in lost
        )

    def copies(self, sent: int) -> int:
        """How many messages are stored of one that was sent so often; 1 where a broker knows what it has."""
        return sent

    def test_a_message_that_is_too_large_is_dead_and_others_go_through(self) -> None:
        """Others may have to be sent again, and are never called wrong."""
        place, body = self.make_place(), self.too_large()
        huge = EventEnvelope("Huge", payload_bytes=body)
        given = [*events(3), huge, *events(3)]
        beside = [events(5) for _ in range(4)]
        with self.sending(place) as relay:
            results = relay.send_at_once(given, *beside)
            waiting = dict(
                zip([*given, *(each for group in beside for each in group)], chain.from_iterable(results), strict=True)
            )
            while any(isinstance(answer, Unavailable) for answer in waiting.values()):
                again = [event for event, answer in waiting.items() if isinstance(answer, Unavailable)]
                waiting.update(zip(again, relay.send(*again), strict=True))
        assert isinstance(waiting.pop(huge), DeadLetter)
        assert set(waiting.values()) == {None}
        assert {event.event_id for event in waiting} <= set(self.ids(place))
        assert huge.event_id not in self.ids(place)

    # ------------------------------------------------------------ life

    def test_it_is_closed_and_opened_again(self) -> None:
        place = self.make_place()
        with self.wire() as wire, self.sending(place, wire=wire) as relay:
            relay.open()
            assert relay.line.is_open
            assert relay.send(*events(2)) == [None] * 2
            made = wire.made
            relay.close()
            relay.close()
            assert not relay.line.is_open
            assert relay.send(*events(2)) == [None] * 2
            assert wire.made > made
        assert len(self.ids(place)) == 4

    def test_nothing_of_it_is_left_when_it_is_closed(self) -> None:
        before = set(threading.enumerate())
        with self.sending(self.make_place()) as relay:
            assert relay.send(*events(2)) == [None] * 2
        left = [each for each in threading.enumerate() if each not in before and not each.name.startswith("asyncio_")]
        for each in left:
            each.join(10)
        assert not [each for each in left if each.is_alive()]

    def test_several_calls_run_beside_each_other(self) -> None:
        place = self.make_place()
        groups = [events(25) for _ in range(8)]
        with self.sending(place) as relay:
            assert relay.send_at_once(*groups) == [[None] * 25] * 8
        assert set(self.ids(place)) == {event.event_id for group in groups for event in group}

    def test_nobody_reads_its_login(self) -> None:
        relay = self.make_relay(*self.address)
        assert relay.name
        assert relay.where
        assert "guest" not in relay.where
        assert "@" not in relay.where
