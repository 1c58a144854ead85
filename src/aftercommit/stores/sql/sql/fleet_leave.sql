-- Be no member any more.
DELETE FROM {instance_table} WHERE id = :id
