-- How many dead events.
DECLARE @event_type nvarchar(256) = :event_type, @aggregate_type nvarchar(128) = :aggregate_type;
SELECT COUNT(*)
FROM {table} WITH (READPAST, READCOMMITTEDLOCK)
WHERE status = 3
  AND (@event_type IS NULL OR event_type = @event_type)
  AND (@aggregate_type IS NULL OR aggregate_type = @aggregate_type)
