"""rediss://: an outbox over TLS, and what is said where the two do not trust each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aftercommit import StoreUnavailable
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from aftercommit.testing.kit import event, insert, take
from tests.conftest import started
from tests.redis_servers import PrivateRedis, redis_answers
from tests.servers import installed
from tests.stores.kit import run_in

PASSWORD = "hush-hush"


class TlsRedis(PrivateRedis):
    """It speaks nothing but TLS, under a certificate that was made for it, and asks for a password."""

    name = "redis-tls"

    def __init__(self, *, asks_clients: bool = False) -> None:
        super().__init__(requirepass=PASSWORD)
        self._asks_clients = asks_clients

    @property
    def certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def url(self) -> str:
        return f"rediss://:{PASSWORD}@localhost:{self.port}"

    @property
    def known(self) -> str:
        """As who trusts the certificate writes it, and has it for the server, too."""
        own = f"&ssl_certfile={self.certificate}&ssl_keyfile={self.folder / 'server.key'}" if self._asks_clients else ""
        return f"{self.url}?ssl_ca_certs={self.certificate}{own}"

    def _make(self) -> None:
        super()._make()
        self._run(
            *(installed("openssl"), "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
            *("-keyout", "server.key", "-out", "server.crt", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
        )

    def _command(self) -> list[str | Path]:
        files = ("--tls-cert-file", self.certificate, "--tls-key-file", self.folder / "server.key")
        asks = ("--tls-auth-clients", "yes" if self._asks_clients else "no")
        ports = ("--port", "0", "--tls-port", str(self.port))
        return [*super()._command(), *ports, *files, "--tls-ca-cert-file", self.certificate, *asks]

    def _answers(self) -> bool:
        return redis_answers(self.known)


@pytest.fixture(scope="module")
def tls() -> Iterator[TlsRedis]:
    yield from started(TlsRedis)


@pytest.fixture(scope="module")
def asking_tls() -> Iterator[TlsRedis]:
    yield from started(lambda: TlsRedis(asks_clients=True))


@pytest.fixture(params=list(Colour), ids=lambda colour: colour.value)
def colour(request: pytest.FixtureRequest) -> Colour:
    found: Colour = request.param
    return found


async def works(url: str, colour: Colour) -> None:
    """Written, heard and claimed."""
    store: Any = open_store(url, colour, table=f"over_tls_{colour.value}")
    assert PASSWORD not in repr(store)
    await store.open()
    listener = store.wakeups
    await listener.receive()
    given = event(payload_bytes=bytes(range(256)) * 500)
    await insert(store, given)
    assert [each.event for each in await take(store)] == [given]
    await store.wakeups.send("woken")
    assert await listener.receive() == ["woken"]
    await store.close()


async def is_refused(url: str, colour: Colour, why: str) -> None:
    store = open_store(url, colour)
    with pytest.raises(StoreUnavailable, match=why) as caught:
        await store.open()
    errors: list[Any] = [caught.value]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    assert not [each for each in errors if PASSWORD in str(each)]
    await store.close()


def test_an_outbox_works_over_tls(tls: TlsRedis, colour: Colour) -> None:
    run_in(colour, works(tls.known, colour))


def test_a_certificate_that_is_not_trusted_is_refused(tls: TlsRedis, colour: Colour) -> None:
    run_in(colour, is_refused(tls.url, colour, "(?i)cannot be reached: .*certificate"))


def test_a_certificate_is_for_its_name(tls: TlsRedis, colour: Colour) -> None:
    """It is for localhost, unless nobody asks for the name."""
    other = tls.known.replace("@localhost", "@127.0.0.1")
    run_in(colour, is_refused(f"{other}&ssl_check_hostname=true", colour, "(?i)cannot be reached: .*127.0.0.1"))
    run_in(colour, works(f"{other}&ssl_check_hostname=false", colour))


def test_a_certificate_may_be_left_unchecked(tls: TlsRedis, colour: Colour) -> None:
    run_in(colour, works(f"{tls.url}?ssl_cert_reqs=none&ssl_check_hostname=false", colour))


def test_a_server_that_speaks_tls_is_not_spoken_to_without(tls: TlsRedis, colour: Colour) -> None:
    plain = tls.url.replace("rediss://", "redis://")
    run_in(colour, is_refused(plain, colour, "cannot be reached"))


def test_a_file_of_certificates_that_there_is_not_is_said(tls: TlsRedis, colour: Colour) -> None:
    run_in(colour, is_refused(f"{tls.url}?ssl_ca_certs=/nowhere/ca.crt", colour, "cannot be reached: "))


def test_a_server_may_ask_clients_for_a_certificate(asking_tls: TlsRedis, colour: Colour) -> None:
    run_in(colour, works(asking_tls.known, colour))
    stranger = f"{asking_tls.url}?ssl_ca_certs={asking_tls.certificate}"
    run_in(colour, is_refused(stranger, colour, "cannot be reached"))
