"""The indexes that keep events in order, and the tables of the fleet."""

from django.db import migrations

from aftercommit.django.operations import OutboxTables


class Migration(migrations.Migration):
    atomic = False  # PostgreSQL builds an index beside writers only outside of transactions
    dependencies = (("aftercommit", "0001_initial"),)
    operations = (OutboxTables(first=2, last=3),)
