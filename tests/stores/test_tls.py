"""What a URL says about TLS is kept: no login goes to a server that cannot encrypt, or is not who it should be."""

from __future__ import annotations

from pathlib import Path

import pytest

from aftercommit.errors import InvalidOption, MissingDriver, StoreUnavailable, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores.detect import open_store
from tests.stores.kit import run_in
from tests.stores.tls_kit import Certificate, LoginServer

MYSQL = {"pymysql": ("mysql", Colour.BLOCKING), "asyncmy": ("mysql", Colour.ASYNC)}
POSTGRES = {
    "psycopg": ("postgresql", Colour.BLOCKING),
    "psycopg-async": ("postgresql", Colour.ASYNC),
    "asyncpg": ("postgresql+asyncpg", Colour.ASYNC),
}
DRIVERS = {**MYSQL, **POSTGRES}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return Certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture(autouse=True)
def nobody_trusts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings of whoever runs the tests."""
    for name in ("PGSSLMODE", "PGSSLROOTCERT", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def heard(driver: str, query: str, certificate: Certificate | None, host: str = "localhost") -> set[str]:
    """How the login came to a server with this certificate, or to one that knows no TLS: once and anew, if at all."""
    scheme, colour = DRIVERS[driver]
    with LoginServer(scheme.partition("+")[0], certificate) as server:
        store = open_store(f"{scheme}://me:secret@{host}:{server.port}/app?{query}", colour)

        async def opened() -> None:
            with pytest.raises(StoreUnavailable):
                await store.open()
            await store.close()

        run_in(colour, opened())
        return set(server.heard)


ENCRYPTED = {"encrypted"}


@pytest.mark.parametrize("driver", DRIVERS)
def test_who_wants_tls_says_nothing_to_a_server_without(driver: str, certificate: Certificate) -> None:
    query = "ssl=true" if driver in MYSQL else "sslmode=require"
    assert heard(driver, query, certificate) == ENCRYPTED
    assert heard(driver, query, None) == set()


@pytest.mark.parametrize("driver", MYSQL)
def test_the_identity_is_verified_by_the_authorities_of_the_system(
    driver: str, certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = "ssl_verify_identity=true"
    assert heard(driver, query, certificate) == set(), "a stranger"
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.path))
    assert heard(driver, query, certificate) == ENCRYPTED
    assert heard(driver, query, certificate, "127.0.0.1") == set(), "of another name"


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_identity_is_verified_by_an_authority(driver: str, certificate: Certificate) -> None:
    ours = f"ssl_ca={certificate.path}" if driver in MYSQL else f"sslmode=verify-full&sslrootcert={certificate.path}"
    lax = {"ssl_ca": "&ssl_verify_identity=false"}.get(ours[:6], "")
    assert heard(driver, ours, certificate) == ENCRYPTED
    assert heard(driver, ours, certificate, "127.0.0.1") == set(), "of another name"
    assert heard(driver, ours.replace("full", "ca") + lax, certificate, "127.0.0.1") == ENCRYPTED


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://h/d?ssl=false&ssl_ca=ca.pem", "ssl=false stands beside ssl_ca"),
        ("mysql://h/d?ssl=false&ssl_verify_identity=true", "ssl=false stands beside ssl_verify_identity"),
        ("mysql://h/d?ssl_key=key.pem", "ssl_key is the key to no ssl_cert"),
        ("postgresql://h/d?sslrootcert=ca.pem", "sslrootcert stands beside sslmode=prefer"),
        ("postgresql+asyncpg://h/d?sslrootcert=ca.pem&sslmode=allow", "sslrootcert stands beside sslmode=allow"),
        ("postgresql+asyncpg://h/d?ssl=require", "asyncpg does not know ssl"),
        ("mssql://h/d?encrypt=optional&host_name_in_certificate=h", "lets no certificate be checked"),
        ("mssql://h/d?trust_server_certificate=yes&host_name_in_certificate=h", "lets no certificate be checked"),
    ],
)
def test_what_would_be_passed_over_is_refused(url: str, told: str) -> None:
    with pytest.raises((InvalidOption, UnknownStore), match=told):
        open_store(url, Colour.ASYNC)


def test_a_driver_that_goes_on_without_tls_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pymysql.VERSION", (1, 1, 3, "final"))
    open_store("mysql://h/d", Colour.BLOCKING)
    with pytest.raises(MissingDriver, match="goes on without TLS"):
        open_store("mysql://h/d?ssl=true", Colour.BLOCKING)
