-- Up to :limit records that are as old as that; those that others have locked stay for the next time.
DELETE TOP (:limit) FROM {table} WITH (READPAST)
WHERE received_at <= {now_minus:older_than} AND consumer <> N''
