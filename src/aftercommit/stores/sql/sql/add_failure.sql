-- Write down one failure of a row.
INSERT INTO {failure_table} (
  event_id, handler_id, failed_at, attempt, handler, instance, error_class, message, traceback
) VALUES (
  :event_id, :handler_id, {now}, :attempt, :handler, :instance, :error_class, :message, :traceback
)
