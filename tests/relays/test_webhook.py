"""Webhooks: what a receiver gets and may answer, and what a hostile one cannot do."""

from __future__ import annotations

import asyncio
import base64
import hmac
import ssl
import threading
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("httpx")
pytest.importorskip("standardwebhooks")

from standardwebhooks.webhooks import Webhook as Verifier

from aftercommit import DeadLetter, InvalidOption, RetryAfterError, Unavailable
from aftercommit.errors import AddressRefused, MessageRefused
from aftercommit.relays import Webhook
from aftercommit.relays.webhooks import guard
from aftercommit.relays.webhooks.answers import retry_after
from tests.relays.kit import message
from tests.relays.receiver import Receiver, Request, status
from tests.stores.tls_kit import Certificate
from tests.support import World

OLD, NEW = ("whsec_" + base64.b64encode(letter * 24).decode() for letter in (b"o", b"n"))


def published(relay: Webhook, *messages: Any) -> list[Any]:
    """On a copy and a loop of its own, as an outbox would."""

    async def whole() -> Any:
        used = copy(relay)
        used.open()
        try:
            return await used.publish(messages)
        finally:
            await used.close()

    return asyncio.run(whole())


def posted(relay: Webhook, **shape: Any) -> Any:
    (answer,) = published(relay, message(relay, **shape))
    return answer


def test_a_receiver_gets_a_signed_cloudevent() -> None:
    with Receiver() as receiver:
        relay = Webhook(f"{receiver.url}/hooks?x=1", secret=[NEW, OLD], allow_private=True, headers={"X-From": "shop"})
        headers = {"note": 'é "q" 5%', "ce-id": "forged", "webhook-id": "forged"}
        sent = message(relay, '{"n": 1}', key="a é", headers=headers)

        assert published(relay, sent) == [None]

    (request,) = receiver.requests
    assert (request.path, request.body) == ("/hooks?x=1", b'{"n": 1}')
    for secret in (OLD, NEW):
        assert Verifier(secret).verify(request.body, request.headers) == {"n": 1}
    expected = {
        "webhook-id": sent.id,
        "ce-id": sent.id,
        "ce-type": "OrderPlaced",
        "ce-partitionkey": "a%20%C3%A9",
        "content-type": "application/json",
        "note": "%C3%A9%20%22q%22%205%25",
        "x-from": "shop",
        "host": f"127.0.0.1:{receiver.port}",
    }
    assert {name: request.headers.get(name) for name in expected} == expected


def test_bytes_that_are_no_text_are_signed_as_they_are() -> None:
    with Receiver() as receiver:
        relay = Webhook(receiver.url, secret=b"k" * 24, allow_private=True)
        assert posted(relay, payload=b"\xff\x00", content_type="image/png") is None
    (request,) = receiver.requests
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + b"\xff\x00"
    mac = base64.b64encode(hmac.digest(b"k" * 24, signed, "sha256")).decode()
    assert request.headers["webhook-signature"] == f"v1,{mac}"


def test_a_function_gives_the_secret_and_the_url_of_each_receiver() -> None:
    secrets = {"a": OLD, "b": NEW}
    with Receiver() as receiver:
        relay = Webhook(secret=lambda event: secrets[event.tenant_id or "a"], allow_private=True)
        assert posted(relay, to=lambda event: f"{receiver.url}/{event.event_type}") is None
    assert receiver.requests[0].path == "/OrderPlaced"
    Verifier(OLD).verify(receiver.requests[0].body, receiver.requests[0].headers)


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (status(200, b"ok"), type(None), ""),
        (
            status(301, Location="http://elsewhere.example/?secret=s3"),
            MessageRefused,
            "leads to http://elsewhere.example",
        ),
        (status(400, b"no\x00\nsuch  order"), MessageRefused, "400 Bad Request: no\x00 such order"),
        (status(410), DeadLetter, "410 Gone"),
        (status(429, Retry_After="7"), Unavailable, "not available"),
        (status(503, Retry_After="junk"), MessageRefused, "503"),
        (status(408, Retry_After="7"), RetryAfterError, "408"),
        (status(500, b"x" * 1_000_000), MessageRefused, "500"),
    ],
)
def test_what_an_answer_means(answer: Any, kind: type, said: str) -> None:
    with Receiver(answer) as receiver:
        error = posted(Webhook(receiver.url, allow_private=True))
    assert (type(error), said in str(error or "")) == (kind, True)
    assert "s3" not in str(error)
    assert len(receiver.requests) == 1
    if kind is Unavailable:
        assert (error.destination, error.retry_in) == (receiver.url, timedelta(seconds=7))
    if kind is RetryAfterError:
        assert error.delay == timedelta(seconds=7)


def test_a_receiver_asks_for_time_in_seconds_or_by_date_within_bounds() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    asked = {
        "120": 120,
        " 5 ": 5,
        "0": 1,
        "999999999": 3600,
        format_datetime(now + timedelta(minutes=2), usegmt=True): 120,
        format_datetime(now - timedelta(days=2), usegmt=True): 1,
        "-3": None,
        "9" * 5000: None,
        "soon": None,
        "Thu, 99 Foo 2026 00:00:00 GMT": None,
    }
    seconds = {value: retry_after(value, now=now) for value in asked}
    assert {value: each and each.total_seconds() for value, each in seconds.items()} == asked


def test_a_host_that_nobody_hears_of_is_away() -> None:
    over = threading.Event()

    def silent(_: Request, handler: Any) -> None:
        over.wait(10)

    def leaves(_: Request, handler: Any) -> None:
        handler.close_connection = True

    with Receiver() as gone:
        relay = Webhook(gone.url, allow_private=True)
    errors = [posted(relay), posted(Webhook("http://nobody.invalid", allow_private=True))]
    for answer, timeout in ((silent, "200ms"), (leaves, "60s")):
        with Receiver(answer) as receiver:
            errors.append(posted(Webhook(receiver.url, allow_private=True, timeout=timeout)))
            over.set()
    assert [type(error) for error in errors] == [Unavailable] * 4
    assert "no answer within 0.2 s" in str(errors[2].__cause__)
    assert "Server disconnected" in str(errors[3].__cause__)


def test_an_event_that_a_host_has_no_answer_to_has_failed_while_others_have_one() -> None:
    """Else what kills its receiver would come again for ever."""
    met = threading.Barrier(2)

    def answer(request: Request, handler: Any) -> None:
        met.wait(10)
        if request.body == b'"poison"':
            over.wait(10)
        else:
            status(204)(request, handler)

    over = threading.Event()
    with Receiver(answer) as receiver:
        relay = Webhook(receiver.url, allow_private=True, timeout="3s")  # in which a busy host answers the other
        poison, other = published(relay, message(relay, '"poison"'), message(relay))
        over.set()
    assert (type(poison), other) == (MessageRefused, None)
    assert "no answer within 3 s" in str(poison)


def test_a_body_without_end_holds_nobody() -> None:
    """The status is all that counts."""

    def endless(_: Request, handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 100000000000\r\n\r\n")
        while True:
            handler.wfile.write(b"x" * 65_536)

    def dripping(_: Request, handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n")
        handler.rfile.read(1)  # which the relay never sends

    for answer in (endless, dripping):
        with Receiver(answer) as receiver:
            assert posted(Webhook(receiver.url, allow_private=True)) is None


def test_many_are_sent_at_the_same_time_but_no_more_than_so_many() -> None:
    lock, now, most = threading.Lock(), [0], [0]
    met = threading.Barrier(3)

    def answer(request: Request, handler: Any) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        met.wait(10)
        with lock:
            now[0] -= 1
        status(204)(request, handler)

    with Receiver(answer) as receiver:
        relay = Webhook(receiver.url, allow_private=True, concurrency=3)
        assert published(relay, *(message(relay) for _ in range(9))) == [None] * 9
    assert most == [3]
    assert receiver.connections <= 9


def test_connections_are_used_again_and_cookies_are_not() -> None:
    with Receiver(status(200, b"ok", Set_Cookie="a=b")) as receiver:
        relay = Webhook(receiver.url, allow_private=True, concurrency=1)
        assert published(relay, *(message(relay) for _ in range(5))) == [None] * 5
    assert receiver.connections == 1
    assert not any("cookie" in request.headers for request in receiver.requests)


# ------------------------------------------------------------------ addresses

PRIVATE = [
    *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.1.2.3"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "192.0.0.8", "198.18.0.1", "192.0.2.1", "192.88.99.1"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2001:0:1::1", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1%lo"),
    *("fec0::1", "ff02::1", "100::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        guard.Guard().check("host", [ip_address("1.1.1.1"), ip_address(address)])


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_a_public_one_is_not(address: str) -> None:
    guard.Guard().check("host", [ip_address(address)])


def test_only_the_networks_that_are_named_are_allowed() -> None:
    some = guard.Guard(["10.1.0.0/16", "fd00::/8"])
    assert some.allows(ip_address("10.1.2.3"))
    assert some.allows(ip_address("::ffff:10.1.2.3"))
    assert not some.allows(ip_address("10.2.2.3"))
    assert not some.allows(ip_address("127.0.0.1"))
    with pytest.raises(InvalidOption, match="allow_private"):
        guard.Guard(["10.1.0.1/16"])


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "localhost."])
def test_names_of_the_own_machine_are_refused_after_the_look_up(host: str) -> None:
    with Receiver() as receiver:
        error = posted(Webhook(f"http://{host}:{receiver.port}"))
    assert isinstance(error, AddressRefused | Unavailable), "some libraries do not know the odd forms"
    assert isinstance(error, AddressRefused) or host not in ("localhost", "127.1")
    assert receiver.connections == 0


def test_the_address_that_was_looked_at_is_the_one_that_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is looked up twice can lead to two places: here each look gives another."""
    looked: list[str] = []
    answers = iter([["127.0.0.1"], ["127.0.0.1", "169.254.169.254"]])

    async def resolve(host: str, port: int) -> list[Any]:
        looked.append(host)
        return [ip_address(each) for each in next(answers)]

    monkeypatch.setattr(guard, "resolve", resolve)
    with Receiver() as receiver:
        relay = Webhook(f"http://receiver.invalid:{receiver.port}", allow_private="127.0.0.0/8")
        assert posted(relay) is None
        assert isinstance(posted(relay), AddressRefused)
    assert looked == ["receiver.invalid"] * 2
    assert [request.headers["host"] for request in receiver.requests] == [f"receiver.invalid:{receiver.port}"]


def test_proxies_of_the_environment_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert posted(Webhook(receiver.url, allow_private=True)) is None
    assert (len(receiver.requests), proxy.connections) == (1, 0)


# ------------------------------------------------------------------ TLS


def test_tls_takes_no_certificate_that_it_was_not_told_of(tmp_path: Path) -> None:
    certificate = Certificate(tmp_path)
    plain = ssl.create_default_context(cafile=str(certificate.path))
    with Receiver(context=certificate.context()) as receiver:
        named = f"https://localhost:{receiver.port}"
        for verify in (certificate.path, str(certificate.path), plain, False):
            assert posted(Webhook(named, allow_private=True, verify=verify)) is None
        heard = len(receiver.requests)
        for url, verify in ((named, True), (receiver.url, certificate.path)):  # of nobody known, and of another name
            error = posted(Webhook(url, allow_private=True, verify=verify))
            assert isinstance(error, Unavailable)
            assert "CERTIFICATE_VERIFY_FAILED" in str(error.__cause__)
    assert heard == len(receiver.requests) == 4


def test_tls_looks_at_the_name_although_it_calls_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolve(host: str, port: int) -> list[Any]:
        return [ip_address("127.0.0.1")]

    monkeypatch.setattr(guard, "resolve", resolve)
    certificate = Certificate(tmp_path)
    with Receiver(context=certificate.context()) as receiver:
        other = Webhook(f"https://other.invalid:{receiver.port}", allow_private=True, verify=certificate.path)
        assert "other.invalid" in str(posted(other).__cause__)
        assert (
            posted(Webhook(f"https://localhost:{receiver.port}", allow_private=True, verify=certificate.path)) is None
        )


# ------------------------------------------------------------------ declared


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda: Webhook("ftp://x.example"), "scheme 'ftp'"),
        (lambda: Webhook("https://"), "host ''"),
        (lambda: Webhook("file:///etc/passwd"), "scheme 'file'"),
        (lambda: Webhook("http://[::1"), "cannot be read"),
        (lambda: Webhook("https://169.254.169.254/latest"), "not a public address"),
        (lambda: Webhook("http://[::ffff:10.0.0.1]/"), "not a public address"),
        (lambda: Webhook("https://x.example", secret="whsec_geheim!"), "no base64"),
        (lambda: Webhook("https://x.example", secret=[]), "holds no secret"),
        (lambda: Webhook("https://x.example", secret="whsk_geheim"), "private key"),
        (lambda: Webhook("https://x.example", headers={"Host": "geheim"}), "no header of yours"),
        (lambda: Webhook("https://x.example", headers={"X-A": "geheim\r\nHost: b"}), "cannot be sent"),
        (lambda: Webhook("https://x.example", verify="/nowhere"), "verify"),
        (lambda: Webhook("https://x.example", concurrency=0), "concurrency"),
        (lambda: Webhook().route(None), "no URL"),
    ],
)
def test_what_makes_no_sense_is_refused_when_it_is_declared(declare: Callable[[], object], said: str) -> None:
    with pytest.raises(InvalidOption, match=said) as refused:
        declare()
    assert "geheim" not in str(refused.value)


def test_secrets_are_in_no_text() -> None:
    with Receiver(status(500)) as receiver:
        url = receiver.url.replace("//", "//user:geheim@") + "/geheim?key=geheim"
        relay = Webhook(url, secret=b"geheim", headers={"authorization": "geheim"}, allow_private=True)
        error = posted(relay)
    login = base64.b64encode(b"user:geheim").decode()
    assert receiver.requests[0].headers["authorization"] == f"Basic {login}"
    sent = message(relay)
    for text in (repr(relay), repr(sent.to), relay.where, relay.destination(sent.to), str(error)):
        assert "geheim" not in text
        assert receiver.url in text


def test_a_header_that_http_cannot_carry_is_a_dead_letter_and_not_left_out() -> None:
    with Receiver() as receiver:
        relay = Webhook(receiver.url, allow_private=True)
        bad = [message(relay, headers={name: "x"}) for name in ("a b", "Transfer-Encoding")]
        answers = published(relay, *bad, message(relay))
    assert [type(answer) for answer in answers] == [DeadLetter, DeadLetter, type(None)]


# ------------------------------------------------------------------ with an outbox


def test_each_host_has_a_circuit_of_its_own(world: World) -> None:
    """One receiver is away; the events of the other go on, and the outbox names the one that is."""
    with Receiver() as here, Receiver() as away:
        pass_on = {"Here": here.url, "Away": away.url}
        away.__exit__()

        async def scenario() -> None:
            outbox = world.outbox()
            outbox.relay(Webhook(secret=OLD, allow_private=True), url=lambda event: pass_on[event.event_type])
            async with outbox:
                async with outbox.transaction():
                    for _ in range(5):
                        await outbox.write("Away", {})
                        await outbox.write("Here", {"id": 1})
                await world.until_settled(5)
                await world.until("SELECT count(*) = 5 FROM outbox_event WHERE status = 2 AND attempts = 0")
                assert (await outbox.stats()).unavailable == (away.url,)

        world.run(scenario)
        assert {Verifier(OLD).verify(each.body, each.headers)["id"] for each in here.requests} == {1}
        assert len(here.requests) == 5
