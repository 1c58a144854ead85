-- Of the events that are not done, one at most has a unique key. It goes as bytes, since no collation tells "a" from "a ".
ALTER TABLE {table} ADD unique_key nvarchar(510) COLLATE Latin1_General_100_BIN2;

ALTER TABLE {table} ADD unique_bytes AS CAST(unique_key AS varbinary(1020));

CREATE UNIQUE INDEX {index:unique} ON {table} (unique_bytes) WHERE unique_key IS NOT NULL AND status IN (0, 2);
