-- Everything up to there is delivered, and never comes again.
SELECT pg_replication_slot_advance(:slot::text, :place::text::pg_lsn)
