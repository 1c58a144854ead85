-- A new epoch for rows that a claim has passed over, and has locked: another claimer that saw them before, and for whom
-- they have fallen due meanwhile, leases nothing of their keys beside it.
UPDATE JSON_TABLE(:positions, '$[*]' COLUMNS (position BIGINT PATH '$')) AS selected
STRAIGHT_JOIN {table} FORCE INDEX (PRIMARY) ON {table}.position = selected.position
SET lease_epoch = lease_epoch + 1
