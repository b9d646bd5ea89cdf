"""The reports of a process about its work: counts for Prometheus, spans for OpenTelemetry. Knows no credits, HTTP or database."""
