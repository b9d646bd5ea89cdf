"""Finds the processes of a cluster.

Note [Whose process is it]
`postmaster.pid` outlives a `kill -9`, and its number may belong to another process by then. The postmaster and its children have
the cluster as their working directory, and the kernel knows it; only that directory decides whether to trust, await or kill a
process, never its number or name. Without /proc this module trusts the number if a process of that number exists, as PostgreSQL
itself does.
"""

import os
import re
from pathlib import Path


def has_proc() -> bool:
    """Return whether this kernel shows the working directories of processes."""
    return Path("/proc/self/cwd").exists()


def postmaster_pid(cluster: Path) -> int | None:
    """Return the process id of this cluster's living postmaster, or None."""
    try:
        pid = int((cluster / "postmaster.pid").read_text().split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return None
    if has_proc():
        return pid if _works_in(cluster, pid) else None
    return pid if _is_alive(pid) else None


def pids(cluster: Path) -> list[int]:
    """Return the process ids of the cluster's postmaster and its children, orphans included; empty without /proc."""
    if not has_proc():
        return []
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in numbers if _works_in(cluster, pid)]


def _works_in(cluster: Path, pid: int) -> bool:
    try:
        process = Path(f"/proc/{pid}")
        state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
        named = re.match(r"postgres", (process / "comm").read_text())
        return state != "Z" and named is not None and (process / "cwd").samefile(cluster)
    except OSError:
        return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
