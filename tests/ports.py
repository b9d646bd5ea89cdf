"""Ports of the loopback for servers that tests start."""

import random
import socket
from contextlib import suppress

FIRST_OF_CLIENTS = 32_768
"""From this port on, Linux gives ports to connections."""


def free_port() -> int:
    """A TCP port of the loopback that is free now. No connection is given it before a server takes it."""
    while True:
        port = random.SystemRandom().randrange(10_000, FIRST_OF_CLIENTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
