-- The event that is not done and has the unique key of another one.
SELECT holder.event_id, holder.unique_key
FROM {table} AS asked INNER JOIN {table} AS holder ON holder.unique_bytes = asked.unique_bytes
WHERE asked.event_id = :event_id AND holder.position <> asked.position
  AND holder.unique_key IS NOT NULL AND holder.{unfinished}
