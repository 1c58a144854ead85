"""Which store a target means, and what is said about a target that means none."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit import AsyncOutbox, Outbox
from aftercommit.errors import ColourMismatch, InvalidOption, OutboxError, UnknownStore
from aftercommit.ports import Colour
from aftercommit.stores import detect
from aftercommit.stores.detect import open_store, register_store
from aftercommit.stores.sqlite.target import SqliteStore
from tests.stores.kit import store_at


@pytest.fixture
def schemes(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What is registered during a test is forgotten after it."""
    known = dict(detect._by_scheme)
    monkeypatch.setattr(detect, "_by_scheme", known)
    return known


def test_a_sqlite_url_is_a_sqlite_store(tmp_path: Path) -> None:
    """TC-105"""
    assert isinstance(store_at(tmp_path / "app.db"), SqliteStore)


@pytest.mark.parametrize(("colour", "kind"), [(Colour.BLOCKING, Outbox), (Colour.ASYNC, AsyncOutbox)])
def test_a_store_has_the_colour_that_was_asked_for(tmp_path: Path, colour: Colour, kind: Any) -> None:
    assert store_at(tmp_path / "app.db", colour).colour is colour
    assert kind(f"sqlite:///{tmp_path}/app.db")._store.colour is colour


def test_a_store_is_taken_as_it_is(tmp_path: Path) -> None:
    store = store_at(tmp_path / "app.db")
    assert open_store(store, Colour.BLOCKING) is store
    assert Outbox(store)._store is store


def test_a_store_of_the_other_colour_is_refused(tmp_path: Path) -> None:
    """A blocking driver under asyncio would stop the loop in silence."""
    with pytest.raises(ColourMismatch, match="AsyncOutbox is async"):
        AsyncOutbox(store_at(tmp_path / "app.db"))
    with pytest.raises(ColourMismatch, match="Outbox is blocking"):
        Outbox(store_at(tmp_path / "app.db", Colour.ASYNC))


def test_a_registered_scheme_opens_its_store(schemes: dict[str, Any]) -> None:
    """TC-105: with the whole URL, the colour and the options."""
    asked = []

    def open_mine(url: str, colour: Colour, **options: Any) -> str:
        asked.append((url, colour, options))
        return "my store"

    register_store("MyDB", open_mine)
    assert open_store("mydb://host/name", Colour.ASYNC, table="t") == "my store"
    assert open_store("MYDB://host/name", Colour.ASYNC) == "my store"
    assert asked[0] == ("mydb://host/name", Colour.ASYNC, {"table": "t"})


def test_an_unknown_scheme_is_told_the_known_ones(schemes: dict[str, Any]) -> None:
    """TC-457"""
    register_store("mydb", lambda *_: None)
    with pytest.raises(UnknownStore, match="no store is known for oracle:// URLs") as caught:
        open_store("oracle://db/app", Colour.BLOCKING)
    assert caught.value.fix == "use one of " + ", ".join(f"{name}://" for name in sorted(schemes))
    assert {"mydb", "sqlite", "postgresql", "mysql", "mariadb", "mssql"} <= set(schemes)


def test_somebody_elses_store_for_a_database_goes_before_ours(schemes: dict[str, Any]) -> None:
    register_store("cockroachdb", lambda *_, **__: "my store")
    assert open_store("cockroachdb+psycopg://db/app", Colour.BLOCKING) == "my store"


@pytest.mark.parametrize(
    ("url", "colour"),
    [
        ("mariadb://u@h/d", Colour.BLOCKING),
        ("mariadb+pymysql://u@h/d", Colour.BLOCKING),
        ("mysql+pymysql://u@h/d", Colour.BLOCKING),
        ("mariadb+asyncmy://u@h/d", Colour.ASYNC),
    ],
)
def test_mariadb_is_spelled_as_sqlalchemy_spells_it(url: str, colour: Colour) -> None:
    store: Any = open_store(url, colour)
    assert (type(store).__name__, store.colour, store.where) == ("MysqlStore", colour, "MySQL at h:3306/d")


@pytest.mark.parametrize(
    ("url", "colour"),
    [
        ("tidb://u@h/d", Colour.BLOCKING),
        ("tidb://u@h/d", Colour.ASYNC),
        ("TiDB+pymysql://u@h/d", Colour.BLOCKING),
        ("tidb+asyncmy://u@h/d", Colour.ASYNC),
    ],
)
def test_tidb_is_told_its_own_statements_on_its_own_port(url: str, colour: Colour) -> None:
    store: Any = open_store(url, colour)
    assert (store.dialect.name, store.colour, store.where) == ("TiDB", colour, "TiDB at h:4000/d")


@pytest.mark.parametrize(
    ("url", "colour"),
    [
        ("cockroachdb://u:hunter2@h/d", Colour.BLOCKING),
        ("cockroachdb://u:hunter2@h/d", Colour.ASYNC),
        ("CockroachDB+psycopg://u:hunter2@h/d", Colour.BLOCKING),
        ("cockroachdb+asyncpg://u:hunter2@h/d", Colour.ASYNC),
    ],
)
def test_cockroachdb_is_told_its_own_statements(url: str, colour: Colour) -> None:
    store: Any = open_store(url, colour)
    assert (store.dialect.name, store.colour, store.where) == ("CockroachDB", colour, "CockroachDB at h/d")


@pytest.mark.parametrize("path", ["app.db", "data/app.db", "/var/lib/app.db", "./app.db", "app_2-x.sqlite3"])
def test_a_bare_path_is_told_its_url(path: str) -> None:
    with pytest.raises(UnknownStore, match="not a URL") as caught:
        open_store(path, Colour.BLOCKING)
    assert f'"sqlite:///{path}"' in caught.value.fix


@pytest.mark.parametrize(
    "target",
    [None, 7, 1.5, True, b"sqlite:///app.db", {}, [], (), {"url": "sqlite://"}, Path("app.db"), object()],
    ids=lambda each: type(each).__name__,
)
def test_other_things_are_named_by_their_type(target: Any) -> None:
    with pytest.raises(UnknownStore, match=f"the target is a .*{type(target).__name__}") as caught:
        Outbox(target)
    assert "sqlite:///app.db" in caught.value.fix


SECRET = "hunter2"


@pytest.mark.parametrize(
    "target",
    [
        "postgresql://user:hunter2@db/app",
        "postgresql://user:it's@hunter2@db/app",
        "postgresql://user:hunter2 x@db/app",
        "postgresql+psycopg://user:hun/hunter2@db/app",
        "mysql://user:hunter2@db/app",
        "mysql://user@db/app?password=hunter2",
        "oracle://user:hunter2@db/app",
        "oracle://user:it's@hunter2@db/app",
        "postgres:hunter2@db/app",
        "user:hunter2@db",
        "host=db user=u password=hunter2",
        "host=db user=u password='hunter2'",
        "Server=db;Pwd=hunter2",
        "sqlite://user:hunter2@db/app",
        "sqlite:///app.db?password=hunter2",
        "sqlite:///app.db?token=hunter2&x=1",
        "hunter2:hunter2",
        "://user:hunter2@db",
    ],
)
@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox], ids=["Outbox", "AsyncOutbox"])
def test_passwords_are_never_shown(kind: Any, target: str) -> None:
    """Neither by the error, with all that is printed beside it, nor by the store."""
    assert SECRET not in shown(target, kind)


def shown(target: Any, kind: Any = Outbox) -> str:
    try:
        return repr(kind(target)._store)
    except OutboxError as error:
        return "".join(traceback.format_exception(error))


#: Texts in front of which no scheme of ours can come to stand.
NOISE = st.text(max_size=30).filter(lambda text: SECRET not in text)


@given(st.text(max_size=60).filter(lambda text: "://" not in text and text != ":memory:"))
def test_any_other_text_is_refused_with_an_advice(text: str) -> None:
    for target in (text, f"unheard-of://{text}"):
        with pytest.raises(UnknownStore) as caught:
            open_store(target, Colour.BLOCKING)
        assert caught.value.fix


@given(NOISE, st.sampled_from(["db", "sqlite", "postgresql", "postgresql+psycopg", "mysql", "mariadb", "mssql"]))
def test_no_password_survives_whatever_surrounds_it(noise: str, scheme: str) -> None:
    for target in (
        f"{scheme}://u:{SECRET}{noise}@host/app",
        f"{scheme}://u:{noise}{SECRET}@host/{noise}",
        f"{noise}:{SECRET}@host",
        f"{scheme}://u{noise}:{noise}{SECRET}@host",
        f"{scheme}://host/app?password={SECRET}&x={noise}",
    ):
        assert SECRET not in shown(target)


@pytest.mark.parametrize("option", [{"table": "other"}, {"delete_completed": True}, {"create_schema": False}])
def test_options_beside_a_ready_store_are_refused_by_name(option: dict[str, object]) -> None:
    """They would be passed over in silence: the store has its table already."""
    store = Outbox("sqlite://")._store
    with pytest.raises(InvalidOption, match=next(iter(option))):
        Outbox(store, **option)
    assert Outbox(store, worker_count=1)._store is store
