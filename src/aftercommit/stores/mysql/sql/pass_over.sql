-- A new epoch for rows that a claim has locked and passed over.
-- Another claimer that saw them before, and for whom they have fallen due, leases nothing of their keys beside it.
UPDATE JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS selected
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = selected.position
SET lease_epoch = lease_epoch + 1
