-- Delete these rows, as long as they are old enough.
DELETE FROM {table}
WHERE position IN :positions AND created_at <= {now_minus:older_than}
