"""The last errors of rows, and the handlers and event types that are paused."""

from django.db import migrations

from aftercommit.django.operations import OutboxTables


class Migration(migrations.Migration):
    dependencies = (("aftercommit", "0002_order_and_fleet"),)
    operations = (OutboxTables(first=4, last=4),)
