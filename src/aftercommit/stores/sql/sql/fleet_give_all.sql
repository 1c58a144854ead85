-- Own nothing any more.
UPDATE {partition_table} SET owner = NULL, epoch = epoch + 1, expires_at = {now} WHERE owner = :id
