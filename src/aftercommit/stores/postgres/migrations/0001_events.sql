-- The table of events, and what is known about it.
CREATE TABLE {schema_table} (
  name text PRIMARY KEY,
  value text NOT NULL
);

-- Half of each page is left free, so that claims and renewals stay on it and touch no index.
CREATE TABLE {table} (
  event_id varchar(36){bytewise} NOT NULL,
  handler_id varchar(255){bytewise} NOT NULL DEFAULT '',
  position bigint GENERATED ALWAYS AS IDENTITY,
  event_type varchar(128){bytewise} NOT NULL,
  aggregate_type varchar(64){bytewise} NOT NULL,
  aggregate_id varchar(128){bytewise},
  tenant_id varchar(64){bytewise},
  event_key varchar(255){bytewise},
  partition_no smallint NOT NULL,
  payload text,
  payload_bytes bytea,
  content_type varchar(128) NOT NULL,
  payload_version integer NOT NULL DEFAULT 1,
  headers text,
  done_handlers text,
  status smallint NOT NULL DEFAULT 0 CHECK (status IN (0, 1, 2, 3)),
  attempts integer NOT NULL DEFAULT 0,
  abandoned smallint NOT NULL DEFAULT 0,
  occurred_at timestamptz NOT NULL,
  scheduled_at timestamptz,
  created_at timestamptz NOT NULL,
  available_at timestamptz NOT NULL,
  done_at timestamptz,
  last_error text,
  locked_by varchar(128),
  locked_at timestamptz,
  lease_until timestamptz,
  lease_epoch integer NOT NULL DEFAULT 0,
  PRIMARY KEY (event_id, handler_id),
  CHECK ((payload IS NULL) <> (payload_bytes IS NULL))
){half_full};

-- Conditions are written as the statements write them. Before there are statistics the planner takes an equality for rare
-- and what is excluded or open to one side for common; only then it walks an index in order and stops at the limit.
CREATE INDEX {index:pending} ON {table} (available_at, position) WHERE status NOT IN (1, 3);

CREATE INDEX {index:ended} ON {table} (status, coalesce(done_at, created_at)) WHERE status NOT IN (0, 2);

CREATE INDEX {index:dead} ON {table} (position) WHERE status >= 3;
