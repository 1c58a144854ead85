"""The contract of bytes: what a handler gets is what was written, whatever the database would like to tidy up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from aftercommit.events.claims import Settlement
from aftercommit.events.envelope import EventEnvelope
from aftercommit.events.outcome import DONE, Dead, Defer, Outcome, Release, Retry
from aftercommit.events.records import EventFilter
from aftercommit.events.redact import MAX_ERROR_LENGTH, error_text
from aftercommit.testing.hooks import StoreHooks, played
from aftercommit.testing.kit import NOON, event, insert, settle, take, take_one

MEGABYTE = 1_048_576

#: Payloads that a database or a driver would like to tidy up.
PAYLOADS: dict[str, str | bytes] = {
    "key order": '{"z": 1, "a": 2, "m": 3}',
    "duplicate keys": '{"a": 1, "a": 2}',
    "white space": ' {\t"a" :\r\n [ 1 , 2 ] } ',
    "a number of 64 bits": '{"n": 9223372036854775808}',
    "a number of 40 digits": '{"n": 1234567890123456789012345678901234567890}',
    "numbers with zeros": "[1.0, 1.10, 1e2, -0, 0.1000000000000000055]",
    "escapes": r'{"a": "\u00e9\n\/\"\\\u0000\ud83d\ude00"}',
    "emoji": '{"a": "😀 é 漢字 \u2028"}',
    "null": "null",
    "text": '"just text"',
    "1 MiB of text": '"' + "é" * ((MEGABYTE - 2) // 2) + '"',
    "no bytes": b"",
    "bytes that are no text": bytes(range(256)),
    "bytes that are text": '{"a": "é"}'.encode(),
    "NUL bytes": b"\x00a\x00\x00",
    "1 MiB of bytes": (bytes(range(256)) * 4096),
}


def of(payload: str | bytes) -> EventEnvelope:
    return event(payload_json=payload) if isinstance(payload, str) else event(payload_bytes=payload)


class Unprintable(Exception):
    """An error that fails again when it is shown."""

    def __str__(self) -> str:
        raise ValueError("no words")


#: Errors whose text is a trap for whoever stores it.
ERRORS: dict[str, BaseException] = {
    "NUL": ValueError("before\x00after"),
    "a lone surrogate": ValueError("before\ud800after"),
    "5 MB": ValueError("5 MB: " + "x" * 5_000_000),
    "5 MB of emoji": ValueError("😀" * 1_250_000),
    "no words": Unprintable(),
    "control characters": ValueError("".join(map(chr, range(32))) + "\x7f\x85"),
    "a statement": ValueError("'); DROP TABLE outbox_event; -- %s %(a)s ? :a $1"),
    "backslashes": ValueError("\\ \\' \\\" \\0 \\u0000 \\x00 \\"),
    "a password": ValueError("cannot reach postgresql://ann:hunter2@db/app"),
}

#: Handlers whose names a list of names may stumble over.
HANDLERS = ("mail", 'it\'s "quoted"', "a,b;c", "[]", "null", "{}", "back\\slash", "é😀", "%s")


class FidelityContract(StoreHooks):
    """Promise 12, in the table."""

    @pytest.mark.parametrize("name", PAYLOADS)
    @played
    async def test_a_payload_keeps_its_bytes(self, name: str) -> None:
        """Promise 12, for whatever a database would tidy up."""
        payload = PAYLOADS[name]
        store = await self.opened()
        await insert(store, of(payload))
        stored = self.row()
        assert (stored["payload"], stored["payload_bytes"]) == (
            (payload, None) if isinstance(payload, str) else (None, payload)
        )
        claimed = await take_one(store)
        assert type(claimed.event.payload) is type(payload)
        assert claimed.event.payload == payload
        assert await settle(store, claimed.lease, Dead("seen"))
        assert [dead.payload for dead in await store.records.query_dead(EventFilter(), 10)] == [payload]

    @played
    async def test_the_envelope_is_the_same_on_every_redelivery(self) -> None:
        """Promise 12: after a retry, a deferral, a takeover and a replay, for each kind of schedule."""
        store = await self.opened()
        given = [
            event(
                payload_json='{"z":1,"a":[1.0]}', headers={"b": "2", "a": "1"}, aggregate_type="Order", aggregate_id=7
            ),
            event(payload_bytes=b"\x00\xff", deliver_after="1h"),
            event(occurred_at=NOON, available_at=NOON + timedelta(microseconds=1)),
        ]
        await insert(store, *given)
        for step in (Retry(timedelta(hours=1), "no"), Defer(timedelta(hours=2)), None, Dead("no"), None, DONE):
            self.fall_due()
            self.expire()
            seen = await take(store)
            assert [each.event for each in seen] == given
            for each in seen:
                if step is not None:
                    assert await settle(store, each.lease, step)
                if isinstance(step, Dead):
                    assert await store.records.replay(each.event.event_id, None) == 1

    @played
    async def test_a_group_of_payloads_keeps_the_bytes_of_each(self) -> None:
        """Text and bytes, headers and none, side by side in one batch."""
        store = await self.opened()
        small = [of(payload) for payload in PAYLOADS.values() if len(payload) < 1000]
        given = [*small, event(headers={"a": "1", "é": "漢\u2028", "quote": "\"'\\"}), event(headers={})]
        await insert(store, *given)
        claimed = await take(store)
        assert [each.event for each in claimed] == given
        assert [type(each.event.payload) for each in claimed] == [type(each.payload) for each in given]

    @pytest.mark.parametrize("version", [1, 2, 2**31 - 1])
    @pytest.mark.parametrize("content_type", ["application/json", 'application/x.avro; v="1"', "é"])
    @played
    async def test_content_type_and_payload_version_come_back(self, content_type: str, version: int) -> None:
        """Alone and in a batch, which may go another way."""
        store = await self.opened()
        given = [
            event(payload_bytes=b"\x00", content_type=content_type, payload_version=version),
            event(content_type=content_type, payload_version=version),
            event(),
        ]
        await insert(store, given[0])
        await insert(store, *given[1:])
        claimed = await take(store)
        assert [each.event for each in claimed] == given
        kinds = [(each.event.content_type, each.event.payload_version) for each in claimed]
        assert kinds == [(content_type, version)] * 2 + [("application/json", 1)]

    # ------------------------------------------------------------ handlers that are done

    @pytest.mark.parametrize(
        "outcome",
        [
            Retry(timedelta(0), "no", HANDLERS),
            Defer(timedelta(0), HANDLERS),
            Release(was_started=True, done_handlers=HANDLERS),
        ],
        ids=lambda each: type(each).__name__,
    )
    @played
    async def test_handlers_that_are_done_are_known_to_the_next_claim(self, outcome: Any) -> None:
        """And stay known when the next outcome has none to add."""
        store = await self.opened()
        await insert(store, event(), event())
        first, second = await take(store)
        assert (first.done_handlers, second.done_handlers) == ((), ())
        plain = replace(outcome, done_handlers=())
        assert not await store.settle([Settlement(first.lease, outcome), Settlement(second.lease, plain)])
        first, second = await take(store)
        assert (first.done_handlers, second.done_handlers) == (HANDLERS, ())
        assert not await store.settle([Settlement(first.lease, plain), Settlement(second.lease, DONE)])
        assert (await take_one(store)).done_handlers == HANDLERS

    @played
    async def test_a_replay_forgets_which_handlers_were_done(self) -> None:
        """All of them are to be called again."""
        store = await self.opened()
        given = event()
        await insert(store, given)
        assert await settle(store, (await take_one(store)).lease, Dead("no", done_handlers=HANDLERS))
        assert self.row()["done_handlers"] is not None
        assert await store.records.replay(given.event_id, None) == 1
        assert (await take_one(store)).done_handlers == ()

    # ------------------------------------------------------------ errors

    @pytest.mark.parametrize("name", ERRORS)
    @played
    async def test_any_error_can_be_written_down(self, name: str) -> None:
        """F75: the text of an error must never be the reason that its row cannot be settled."""
        store = await self.opened()
        await insert(store, *[event() for _ in range(3)])
        text = error_text(ERRORS[name])
        assert len(text) <= MAX_ERROR_LENGTH
        leases = [each.lease for each in await take(store)]
        outcomes: list[Outcome] = [Retry(timedelta(0), text), Dead(text), DONE]
        assert not await store.settle([Settlement(lease, each) for lease, each in zip(leases, outcomes, strict=True)])
        assert [row["last_error"] for row in self.rows()] == [text, text, None]
        assert [dead.last_error for dead in await store.records.query_dead(EventFilter(), 10)] == [text]
        assert await settle(store, (await take_one(store)).lease, Retry(timedelta(0), text))
        assert await store.records.discard(self.rows()[1]["event_id"], None, text) == 1
