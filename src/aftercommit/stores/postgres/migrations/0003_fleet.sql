-- The instances that deliver, and who of them owns which partition.
CREATE TABLE {instance_table} (
  id varchar(128){bytewise} PRIMARY KEY,
  host varchar(255) NOT NULL,
  pid integer NOT NULL,
  started_at timestamptz NOT NULL,
  heartbeat_at timestamptz NOT NULL,
  status smallint NOT NULL DEFAULT 0
);

-- Every heartbeat writes all rows of its instance; with that much room on its page a row stays on it.
CREATE TABLE {partition_table} (
  partition_no smallint PRIMARY KEY,
  owner varchar(128){bytewise},
  epoch integer NOT NULL DEFAULT 0,
  expires_at timestamptz
){nearly_empty};

-- All there will ever be, so that nobody has to begin.
INSERT INTO {partition_table} (partition_no) SELECT generate_series(0, 255);
