"""What watches an outbox: exporters of metrics, and tracing. Each is an extra; none is loaded before it is used."""
