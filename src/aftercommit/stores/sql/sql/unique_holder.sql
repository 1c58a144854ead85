-- The event that is not done and has the unique key of another one.
SELECT holder.event_id, holder.unique_key
FROM {table} AS asked INNER JOIN {table} AS holder ON holder.unique_key = asked.unique_key
WHERE asked.event_id = :event_id AND holder.event_id <> asked.event_id AND holder.{unfinished}
