"""How much is executed at the same time, and what goes first: queues of requests, slots of batches, pacing."""
