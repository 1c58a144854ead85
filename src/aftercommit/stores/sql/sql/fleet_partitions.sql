-- All partitions: who owns them, under which epoch, for how many microseconds yet.
SELECT partition_no, owner, epoch, {until:expires_at}
FROM {partition_table}
ORDER BY partition_no
