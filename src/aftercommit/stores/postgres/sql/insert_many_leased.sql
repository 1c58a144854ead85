-- Write many plain events in the caller's transaction, in order; born leased.
INSERT INTO {table} ({plain}, locked_by, locked_at, lease_until, lease_epoch)
SELECT {plain_values:new}, new.owner, {now}, {now_plus:new.lock_timeout}, 1
FROM {new_leased_rows}
ORDER BY number
