"""The table of the inbox, as this release makes it."""

from django.db import migrations

from aftercommit.django.inbox.operations import InboxTable


class Migration(migrations.Migration):
    initial = True
    dependencies = ()
    operations = (InboxTable(),)
