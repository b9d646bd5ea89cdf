"""What a process tells of its work: counts for Prometheus, spans for OpenTelemetry. Knows no credits, no HTTP, no database."""
