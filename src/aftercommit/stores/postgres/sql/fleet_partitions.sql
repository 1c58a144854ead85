-- All partitions: who owns them, under which epoch, for how many microseconds yet.
SELECT partition_no, owner, epoch, (extract(epoch FROM expires_at - {now}) * 1000000)::bigint
FROM {partition_table}
ORDER BY partition_no
