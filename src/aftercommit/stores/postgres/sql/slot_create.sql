-- From here on the server keeps its log for whoever reads the slot. Waits for the transactions that are open.
SELECT pg_create_logical_replication_slot(:slot::text, 'pgoutput')
