"""The ASGI application of a web process, and the steps that every request passes in it."""
