"""The unique keys of events."""

from django.db import migrations, models

from aftercommit.django.operations import OutboxTables


class Migration(migrations.Migration):
    atomic = False  # PostgreSQL builds an index beside writers only outside of transactions
    dependencies = (("aftercommit", "0003_failures_and_pauses"),)
    operations = (
        migrations.SeparateDatabaseAndState(
            database_operations=[OutboxTables(first=5, last=5)],
            state_operations=[
                migrations.AddField("event", "unique_key", models.CharField(max_length=255, null=True)),
            ],
        ),
    )
