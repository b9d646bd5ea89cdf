"""Limits and orders simultaneous work: queues of requests, slots of batches, pacing."""
