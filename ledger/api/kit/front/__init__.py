"""The ASGI application of a web process, and what every request passes in it."""
