-- The mark by which this table is told from others of its name.
SELECT message_id FROM {table} WHERE consumer = ''
