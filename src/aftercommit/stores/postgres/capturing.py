"""What makes rows be born done where the log is read instead of the table: a publication, a slot and a trigger."""

from __future__ import annotations

from collections.abc import Iterator

from aftercommit.stores.sql.statements import TableNames

#: A row that is free and due is delivered from the log, so it is born done, as long as somebody keeps the log for it:
#: without its slot the table takes over by itself. What is born leased, falls due later, or must be unique while it is
#: not done, is the table's business.
_FUNCTION = """\
CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $capture$
BEGIN
  IF EXISTS (
    SELECT FROM pg_catalog.pg_replication_slots
    WHERE slot_name = TG_ARGV[0] AND database = pg_catalog.current_database() AND wal_status IS DISTINCT FROM 'lost'
  ) THEN
    NEW.status := 1;
    NEW.done_at := pg_catalog.statement_timestamp();
  END IF;
  RETURN NEW;
END
$capture$"""

_TRIGGER = """\
CREATE TRIGGER {trigger} BEFORE INSERT ON {table} FOR EACH ROW
WHEN (
  NEW.status = 0 AND NEW.locked_by IS NULL AND NEW.unique_key IS NULL AND NEW.available_at <= statement_timestamp()
)
EXECUTE FUNCTION {function}('{slot}')"""


class Capturing:
    """The statements, in order. Slots and publications have the same name; nothing of it needs quotes or has any."""

    def __init__(self, names: TableNames, slot: str) -> None:
        self._names = names
        self.slot = self.publication = slot
        self.trigger = f"{names.table}_capture"

    @property
    def create_publication(self) -> str:
        table = self._names.qualified(self._names.table)
        return f"CREATE PUBLICATION \"{self.publication}\" FOR TABLE {table} WITH (publish = 'insert')"

    @property
    def drop_publication(self) -> str:
        return f'DROP PUBLICATION IF EXISTS "{self.publication}"'

    def create_trigger(self) -> Iterator[str]:
        function = self._names.qualified(self.trigger)
        table, trigger = self._names.qualified(self._names.table), self._names.quoted(self.trigger)
        yield _FUNCTION.format(function=function)
        yield _TRIGGER.format(trigger=trigger, table=table, function=function, slot=self.slot)

    def drop_trigger(self) -> Iterator[str]:
        table, trigger = self._names.qualified(self._names.table), self._names.quoted(self.trigger)
        yield f"DROP TRIGGER IF EXISTS {trigger} ON {table}"
        yield f"DROP FUNCTION IF EXISTS {self._names.qualified(self.trigger)}()"

    def script(self) -> str:
        """For people who run their own migrations. A slot is made in a transaction that has changed nothing."""
        steps = [
            self.create_publication,
            f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')",
            *self.create_trigger(),
        ]
        return "".join(f"\n{step};\n" for step in steps)
