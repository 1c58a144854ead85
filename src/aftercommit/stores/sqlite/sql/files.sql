-- The files that the connection has open.
PRAGMA database_list
