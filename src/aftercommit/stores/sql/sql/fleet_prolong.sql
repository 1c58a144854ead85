-- Own for longer what is owned, even after its time as long as nobody has taken it.
UPDATE {partition_table} SET expires_at = {now_plus:lasts} WHERE owner = :id
