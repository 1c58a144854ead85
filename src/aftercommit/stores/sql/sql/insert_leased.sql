-- Write one plain event in the caller's transaction; born leased.
INSERT INTO {table} ({plain}, locked_by, locked_at, lease_until, lease_epoch) VALUES (
  {plain_values}, :owner, {now}, {now_plus:lock_timeout}, 1
)
