-- Take back a row that this transaction wrote.
DELETE FROM {table} WHERE {of_event}
