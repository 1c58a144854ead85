-- Which of these rows were delivered or changed by other ways since they were born done.
SELECT row.event_id, row.handler_id
FROM unnest(:event_id::text::text[], :handler_id::text::text[]) AS asked (event_id, handler_id)
JOIN {table} AS row ON row.event_id = asked.event_id AND row.handler_id = asked.handler_id
WHERE (row.status = 1 AND row.lease_epoch = 0 AND row.locked_by IS NULL) IS NOT TRUE
