"""The admin shows events and changes nothing but what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import connections, transaction
from django.test import Client

from aftercommit.django import outbox, outbox_for
from aftercommit.django.models import Event
from tests.django import kit
from tests.django.shop import handlers

LIST = "/admin/aftercommit/event/"


@pytest.fixture(scope="module", autouse=True)
def tables() -> None:
    call_command("migrate", database="default", verbosity=0)
    for alias in ("default", "second"):
        kit.make_tables(alias)


@pytest.fixture(autouse=True)
def dead_events() -> Iterator[dict[str, str]]:
    """One dead event in each database, of a handler that fails."""
    handlers.paper.clear()
    ids: dict[str, str] = {}
    for each in (outbox, outbox_for("second")):
        kit.clear_tables(each.alias)
        with transaction.atomic(using=each.alias):
            ids[each.alias] = each.write("Fragile", {"in": each.alias})
        assert each.drain().dead == 1
        each.close()
    yield ids
    User.objects.all().delete()


@pytest.fixture
def client_of() -> Callable[..., Client]:
    def client(*permissions: str) -> Client:
        user = User.objects.create_user("ada", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        made = Client()
        made.force_login(user)
        return made

    return client


def act(client: Client, action: str, *, query: str = "", alias: str = "default") -> Any:
    marked = list(Event.objects.using(alias).values_list("pk", flat=True))
    return client.post(f"{LIST}{query}", {"action": action, "_selected_action": marked}, follow=True)


def test_events_are_listed_and_read(client_of: Any, dead_events: dict[str, str]) -> None:
    client = client_of("view_event")
    page = client.get(f"{LIST}?status__exact=3").content.decode()
    assert dead_events["default"] in page
    assert "ValueError: no paper" in page
    assert "Replay dead events" not in page
    event = Event.objects.get()
    assert str(event) == f"Fragile {dead_events['default']}"
    assert event.created_at <= event.done_at
    detail = client.get(f"{LIST}{event.pk}/change/").content.decode()
    assert "{&quot;in&quot;:&quot;default&quot;}" in detail
    assert 'name="_save"' not in detail
    assert "<input" not in detail.partition("<fieldset")[2]


def test_nothing_can_be_added_changed_or_deleted(client_of: Any) -> None:
    client = client_of("view_event", "change_event")
    pk = Event.objects.get().pk
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{pk}/change/", {"status": 0}).status_code == 403
    assert client.post(f"{LIST}{pk}/delete/", {"post": "yes"}).status_code == 403
    assert act(client, "delete_selected").status_code == 200
    assert Event.objects.get().status == 3


def test_without_permission_nothing_is_seen_or_done(client_of: Any) -> None:
    assert client_of().get(LIST).status_code == 403
    User.objects.all().delete()
    act(client_of("view_event"), "replay")
    assert Event.objects.get().status == 3


def test_dead_events_are_replayed(client_of: Any) -> None:
    page = act(client_of("change_event"), "replay").content.decode()
    assert "1 dead events were replayed." in page
    assert (Event.objects.get().status, Event.objects.get().attempts) == (0, 0)
    assert "0 dead events were replayed." in act(client_of_again(), "replay").content.decode()


def client_of_again() -> Client:
    client = Client()
    client.force_login(User.objects.get())
    return client


def test_dead_events_are_discarded_with_the_name_of_who_did_it(client_of: Any) -> None:
    assert "1 dead events were discarded." in act(client_of("change_event"), "discard").content.decode()
    assert (Event.objects.get().status, Event.objects.get().last_error) == (1, "discarded: by ada")


def test_actions_run_in_the_atomic_block_of_the_request(client_of: Any) -> None:
    """On a SQLite database a second connection would wait for the first one for ever."""
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert "1 dead events were replayed." in act(client_of("change_event"), "replay").content.decode()
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False
    assert Event.objects.get().status == 0


def test_another_database_is_chosen_by_a_filter(client_of: Any, dead_events: dict[str, str]) -> None:
    client = client_of("change_event")
    page = client.get(f"{LIST}?database=second").content.decode()
    assert dead_events["second"] in page
    assert dead_events["default"] not in page
    detail = f"{LIST}{Event.objects.using('second').get().pk}/change/?_changelist_filters=database%3Dsecond"
    assert dead_events["second"] in client.get(detail).content.decode()
    act(client, "replay", query="?database=second", alias="second")
    assert (Event.objects.using("second").get().status, Event.objects.get().status) == (0, 3)
    assert dead_events["default"] in client.get(f"{LIST}?database=nowhere").content.decode()


@pytest.mark.parametrize("alias", ["postgres", "mariadb"], indirect=True)
def test_times_are_read_on_every_database(alias: str, make_outbox: Any) -> None:
    made = make_outbox(alias)
    with transaction.atomic(using=alias):
        event_id = made.write("Placed", 1)
    event = Event.objects.using(alias).get()
    assert (event.event_id, event.created_at.utcoffset().total_seconds(), event.done_at) == (event_id, 0, None)
    assert abs((event.created_at - event.occurred_at).total_seconds()) < 60
