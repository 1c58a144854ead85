"""The events in the admin: to look at, and dead ones to replay or discard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

from django.contrib import admin, messages
from django.db import DEFAULT_DB_ALIAS

from aftercommit.django.conf import aliases, table_of
from aftercommit.django.models import Event
from aftercommit.django.outboxes import DjangoOutbox, outbox_for
from aftercommit.events.envelope import EventStatus


def _shown() -> list[str]:
    """The databases that the model can read: those whose table has its name."""
    return [alias for alias in aliases() if table_of(alias) == table_of(DEFAULT_DB_ALIAS)] or [DEFAULT_DB_ALIAS]


def _alias_of(request: Any) -> str:
    """The database that was chosen in the list, also on the page of one event."""
    behind = parse_qs(request.GET.get("_changelist_filters", "")).get("database", [None])[0]
    chosen = request.GET.get("database", behind)
    return chosen if chosen in _shown() else _shown()[0]


class DatabaseFilter(admin.SimpleListFilter):
    """Which database, where there are several."""

    title = "database"
    parameter_name = "database"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:
        return [(alias, alias) for alias in _shown()] if len(_shown()) > 1 else []

    def queryset(self, request: Any, queryset: Any) -> Any:
        return queryset  # it was asked from the right one already


@admin.register(Event)
class EventAdmin(admin.ModelAdmin):
    """Read-only. Who may change events may replay and discard dead ones."""

    list_display = ("event_id", "event_type", "status", "attempts", "handler_id", "event_key", "created_at", "problem")
    list_filter = (DatabaseFilter, "status")
    search_fields = ("event_id__exact", "event_type__exact", "event_key__exact", "aggregate_id__exact")
    show_full_result_count = False
    exclude = ("payload_bytes",)
    actions = ("replay", "discard")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).using(_alias_of(request))

    def has_add_permission(self, request: Any, obj: Event | None = None) -> bool:
        return False

    has_change_permission = has_delete_permission = has_add_permission

    def has_view_permission(self, request: Any, obj: Event | None = None) -> bool:
        return self.has_replay_permission(request) or bool(request.user.has_perm("aftercommit.view_event"))

    def has_replay_permission(self, request: Any) -> bool:
        return bool(request.user.has_perm("aftercommit.change_event"))

    @admin.display(description="last error")
    def problem(self, event: Event) -> str:
        lines = (event.last_error or "").strip().splitlines()
        return lines[0][:120] if lines else ""

    @admin.action(description="Replay dead events", permissions=["replay"])
    def replay(self, request: Any, queryset: Any) -> None:
        self._each(request, queryset, "replayed", lambda outbox, *row: outbox.dead.replay(row[0], handler_id=row[1]))

    @admin.action(description="Discard dead events", permissions=["replay"])
    def discard(self, request: Any, queryset: Any) -> None:
        reason = f"by {request.user.get_username()}"
        self._each(
            *(request, queryset, "discarded"),
            lambda outbox, *row: outbox.dead.discard(row[0], handler_id=row[1], reason=reason),
        )

    def _each(self, request: Any, queryset: Any, done: str, act: Callable[..., bool]) -> None:
        """Whatever else was marked is let be: only dead events can be replayed or discarded."""
        outbox: DjangoOutbox = outbox_for(_alias_of(request))
        dead = queryset.filter(status=EventStatus.DEAD.value).values_list("event_id", "handler_id")
        count = sum([act(outbox, *row) for row in dead])
        self.message_user(request, f"{count} dead events were {done}.", messages.SUCCESS if count else messages.WARNING)
