-- Keep one fact about this outbox. The schema lock is held, so nobody comes between.
DECLARE @name nvarchar(64) = :name, @value nvarchar(255) = :value;
UPDATE {schema_table} SET value = @value WHERE name = @name;
INSERT INTO {schema_table} (name, value)
SELECT @name, @value
WHERE NOT EXISTS (SELECT 1 FROM {schema_table} WHERE name = @name)
