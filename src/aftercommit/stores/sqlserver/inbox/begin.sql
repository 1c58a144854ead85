-- In its implicit mode the driver begins before a look at a table, and not before a savepoint.
SELECT consumer FROM {table} WHERE 1 = 0
