"""What relays promise when connections and brokers fail."""

from __future__ import annotations

from typing import Any

from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import Unavailable
from aftercommit.relays.testing.hooks import RelayHooks


def events(count: int, *, keys: int | None = None, **fields: Any) -> list[EventEnvelope]:
    """Each with a body of its own; over so many keys, one after the other."""
    return [
        EventEnvelope(
            "OrderPlaced", payload_json=f'{{"number": {n}}}', key=None if keys is None else f"key-{n % keys}", **fields
        )
        for n in range(count)
    ]


class OutageContract(RelayHooks):
    """A part of the contract."""

    def test_a_broker_that_is_away_is_called_so_and_then_it_is_back(self) -> None:
        place = self.make_place()
        given = events(5)
        with self.wire() as wire:
            wire.refuse()
            with self.sending(place, wire=wire) as relay:
                relay.open()  # which an outbox does when it starts, and it must not fail
                for _ in range(2):
                    answers = relay.send(*given)
                    assert all(isinstance(answer, Unavailable) for answer in answers), answers
                    assert {answer.destination for answer in answers} == {relay.line.relay.where}  # type: ignore[union-attr]
                wire.mend()
                assert relay.send(*given) == [None] * 5
        assert set(self.ids(place)) == {event.event_id for event in given}

    def test_what_is_not_confirmed_does_not_count_as_sent(self) -> None:
        place = self.make_place()
        first, second = events(1), events(3)
        with self.wire() as wire, self.sending(place, wire=wire) as relay:
            assert relay.send(*first) == [None]
            wire.swallow()
            answers = relay.send(*second)
            assert wire.swallowed.is_set(), "the fault met nobody"
            assert all(isinstance(answer, Unavailable) for answer in answers), answers
            wire.mend()
            wire.cut()
            assert relay.send(*second) == [None] * 3
        assert {event.event_id for event in (*first, *second)} == set(self.ids(place))

    def test_connections_that_are_cut_lose_nothing_that_was_confirmed(self) -> None:
        place, confirmed = self.make_place(), set[str]()
        given = events(200)
        waiting, cuts = list(given), 0
        with self.wire() as wire, self.sending(place, wire=wire) as relay:
            relay.open()
            while waiting:
                if cuts < 8:
                    wire.cut_after(300 + 700 * cuts)
                    cuts += 1
                answers = relay.send(*waiting[:40])
                for event, answer in zip(waiting[:40], answers, strict=True):
                    assert answer is None or isinstance(answer, Unavailable), answer
                    if answer is None:
                        confirmed.add(event.event_id)
                assert confirmed <= set(self.ids(place)), "confirmed, and not stored"
                waiting = [event for event in waiting if event.event_id not in confirmed]
            assert wire.made > 4, "no connection was cut"
        assert confirmed == {event.event_id for event in given}

    def test_a_broker_that_was_killed_has_what_it_confirmed_and_is_used_again(self) -> None:
        place = self.make_place()
        before, after = events(20), events(20)
        with self.sending(place) as relay:
            assert relay.send(*before) == [None] * 20
            self.restart()
            answers = relay.send(*after)
            assert all(answer is None or isinstance(answer, Unavailable) for answer in answers), answers
            while any(isinstance(answer, Unavailable) for answer in answers):
                answers = relay.send(*after)
        assert {event.event_id for event in (*before, *after)} <= set(self.ids(place))
