-- Whether this session may read the slot: one does at a time, for as long as its session lives.
SELECT pg_try_advisory_lock(hashtextextended('aftercommit:tail:' || :slot::text, 0))
