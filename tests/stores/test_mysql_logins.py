"""MySQL's own way to log in, caching_sha2_password, through each driver: the password goes by TLS or by the server's
public key the first time, and as a hash after that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from aftercommit.stores.detect import open_store
from aftercommit.testing.kit import event, take
from tests.conftest import on_real_mysql
from tests.stores.kit import insert, run_in
from tests.stores.mysql_kit import DRIVERS, connect, made, parts_of, store_at

pytestmark = on_real_mysql

PASSWORD = "pässword 漢/@:'"


@pytest.fixture
def login(mysql_url: str) -> Iterator[str]:
    """The URL of a user who has not logged in yet."""
    table = made(mysql_url)
    table.clear()
    parts = parts_of(mysql_url)
    user = f"user_{parts['database'][-8:]}"
    table.execute(f"CREATE USER '{user}'@'%%' IDENTIFIED WITH caching_sha2_password BY %s", PASSWORD)
    table.execute(f"GRANT ALL ON {parts['database']}.* TO '{user}'@'%'")
    yield f"mysql://{user}:{quote(PASSWORD, safe='')}@{parts['host']}:{parts['port']}/{parts['database']}"
    table.execute(f"DROP USER '{user}'@'%'")
    table.close()


async def walked(store: Any) -> None:
    """Twice: the second login is by the hash that the server has kept."""
    for _ in range(2):
        await store.open()
        given = event()
        await insert(store, given)
        assert [claimed.event for claimed in await take(store)] == [given]
        await store.close()


@pytest.mark.parametrize("tls", ["", "?ssl=true", "?ssl=false"])
@pytest.mark.parametrize("driver", DRIVERS)
def test_a_password_is_told_with_and_without_tls(login: str, driver: str, tls: str) -> None:
    run_in(DRIVERS[driver], walked(store_at(login + tls, DRIVERS[driver])))


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_open_connection_shows_the_way_with_its_password(login: str, driver: str) -> None:
    with connect(login, user=login.split("/")[2].split(":", maxsplit=1)[0], password=PASSWORD.encode()) as connection:
        run_in(DRIVERS[driver], walked(open_store(connection, DRIVERS[driver])))
