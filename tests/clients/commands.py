"""Runs the `manage.py` of pages in forks of one process that has loaded the project: loading it takes longer than most commands.

`python -m tests.clients.commands SOCKET` is that process. This file with the socket and a command's arguments asks it: the
command gets the folder, the standard streams and PGOPTIONS of who asks, who ends as the command did. One runs after the other.
"""

import json
import os
import socket
import sys
from typing import Any, Final

STREAMS: Final = (0, 1, 2)
MOST_BYTES: Final = 65_536


def ask(address: str, arguments: list[str]) -> int:
    """Have a command run in the folder of the shell, and return its exit code."""
    request = {"arguments": arguments, "folder": os.environ["PWD"], "PGOPTIONS": os.environ.get("PGOPTIONS", "")}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [json.dumps(request).encode()], STREAMS)
        return int(connection.recv(MOST_BYTES))


def serve(address: str) -> list[str]:
    """Answer who asks, for ever; in the fork that becomes a command, return its arguments."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while True:
            connection, _ = listener.accept()
            with connection:
                text, streams, _, _ = socket.recv_fds(connection, MOST_BYTES, len(STREAMS))
                request = json.loads(text)
                child = os.fork()
                if child == 0:
                    return become(request, streams)
                for stream in streams:
                    os.close(stream)
                connection.sendall(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def become(request: dict[str, Any], streams: list[int]) -> list[str]:
    """Take over folder, streams and options of who asked; return the arguments."""
    for stream, own in zip(streams, STREAMS, strict=True):
        os.dup2(stream, own)
    os.chdir(request["folder"])
    os.environ["PGOPTIONS"] = request["PGOPTIONS"]
    arguments: list[str] = request["arguments"]
    return arguments


if __name__ == "__main__":
    if __package__:
        import io
        import runpy
        from pathlib import Path

        import django
        from django.core.management import call_command
        from django.db import connections

        os.environ["DJANGO_SETTINGS_MODULE"] = "ledger_project.settings"
        django.setup()
        # Commands begin with the checks, which load every page and call.
        call_command("check", stdout=io.StringIO())
        connections.close_all()
        program = str(Path("manage.py").absolute())
        sys.argv = [program, *serve(sys.argv[1])]
        runpy.run_path(program, run_name="__main__")
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
