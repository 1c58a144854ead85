-- No fleet: every process looks after all partitions.
DROP TABLE IF EXISTS {instance_table};

DROP TABLE IF EXISTS {partition_table};
