"""The app of the inbox. It needs no other: a consumer may have no outbox."""

from __future__ import annotations

from django.apps import AppConfig


class InboxConfig(AppConfig):
    """`INSTALLED_APPS += ["aftercommit.django.inbox"]`."""

    name = "aftercommit.django.inbox"
    label = "aftercommit_inbox"
    verbose_name = "Inbox"
