"""Apache Kafka, through confluent-kafka: an idempotent producer, and a delivery report for each message."""
