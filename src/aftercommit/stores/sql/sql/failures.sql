-- The failures of an event that are kept, or of one of its rows, in the order in which they were written down.
SELECT event_id, handler_id, {read:failed_at}, attempt, handler, instance, error_class, message, traceback
FROM {failure_table}
WHERE {of_event}
ORDER BY number
