-- Take back a row that this transaction wrote.
DELETE FROM {table} WHERE event_id = :event_id AND handler_id = :handler_id
