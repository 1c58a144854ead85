"""The app: checks, and the handlers of all installed apps."""

from __future__ import annotations

from django.apps import AppConfig
from django.core.checks import register
from django.utils.module_loading import autodiscover_modules

from aftercommit.errors import OutboxError


class AftercommitConfig(AppConfig):
    """`INSTALLED_APPS += ["aftercommit.django"]`."""

    name = "aftercommit.django"
    label = "aftercommit"
    verbose_name = "Outbox"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from aftercommit.django import checks  # noqa: PLC0415  (it wants the settings)

        register(checks.check_settings)
        register(checks.check_transaction_mode)
        try:
            autodiscover_modules("handlers")
        except OutboxError:
            if not checks.check_settings():  # which has no chance to speak when Django does not start
                raise
