-- What an instance owns, with the epochs.
SELECT partition_no, epoch FROM {partition_table} WHERE owner = :id ORDER BY partition_no
