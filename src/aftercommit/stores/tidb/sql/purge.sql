-- Delete these rows, as long as they are of that status and ended long enough ago.
DELETE FROM {table}
WHERE position IN :positions
  AND status = :status
  AND (done_at <= {now_minus:older_than}
       OR (done_at IS NULL AND created_at <= {now_minus:older_than}))
