"""The tables, as the outbox of this release makes them, and the model that reads them."""

from django.db import DEFAULT_DB_ALIAS, migrations, models

from aftercommit.django.conf import table_of
from aftercommit.django.models import InstantField
from aftercommit.django.operations import OutboxTables

STATUSES = [(0, "NEW"), (1, "DONE"), (2, "RETRY"), (3, "DEAD")]


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (
        migrations.SeparateDatabaseAndState(
            database_operations=[OutboxTables(last=1)],
            state_operations=[
                migrations.CreateModel(
                    name="Event",
                    fields=[
                        ("position", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("event_id", models.CharField(max_length=36)),
                        ("handler_id", models.CharField(blank=True, default="", max_length=255)),
                        ("event_type", models.CharField(max_length=128)),
                        ("aggregate_type", models.CharField(max_length=64)),
                        ("aggregate_id", models.CharField(max_length=128, null=True)),
                        ("tenant_id", models.CharField(max_length=64, null=True)),
                        ("event_key", models.CharField(max_length=255, null=True, verbose_name="key")),
                        ("payload", models.TextField(null=True)),
                        ("payload_bytes", models.BinaryField(null=True)),
                        ("content_type", models.CharField(max_length=255)),
                        ("payload_version", models.IntegerField(default=1)),
                        ("headers", models.TextField(null=True)),
                        ("status", models.SmallIntegerField(choices=STATUSES, default=0)),
                        ("attempts", models.IntegerField(default=0)),
                        ("abandoned", models.SmallIntegerField(default=0)),
                        ("occurred_at", InstantField()),
                        ("created_at", InstantField()),
                        ("available_at", InstantField()),
                        ("done_at", InstantField(null=True)),
                        ("last_error", models.TextField(null=True)),
                        ("locked_by", models.CharField(max_length=128, null=True)),
                        ("lease_until", InstantField(null=True)),
                    ],
                    options={
                        "db_table": table_of(DEFAULT_DB_ALIAS),
                        "ordering": ("-event_id", "-handler_id"),
                        "unique_together": {("event_id", "handler_id")},
                        "default_permissions": ("view", "change"),
                    },
                ),
            ],
        ),
    )
