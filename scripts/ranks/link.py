"""A link between two machines, as one machine has it: two network namespaces, and between them a pair of
interfaces that are shaped to a rate. Needs root and iproute2.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pairs import Failed

ADDRESSES = ("10.232.0.1", "10.232.0.2")
DEVICE = "veth"
# What a shaper lets through at once: at these rates a timer's tick has to be worth as much.
BURST = "2mb"
LATENCY = "50ms"


class Link:
    """Is there from `with` on, and gone after it."""

    def __init__(self, gigabits: float) -> None:
        self._rate = f"{gigabits}gbit"
        self.names = tuple(f"isometry-{os.getpid()}-{end}" for end in (0, 1))

    def __enter__(self) -> Link:
        try:
            self._make()
        except Failed as why:
            self.__exit__()
            sys.exit(f"no link: {why}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self) -> None:
        if os.geteuid() != 0:
            raise Failed("namespaces need root")
        here, there = self.names
        for name in self.names:
            ip("netns", "add", name)
        ip("-n", here, "link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", there)
        for name, address in zip(self.names, ADDRESSES):
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "address", "add", f"{address}/24", "dev", DEVICE)
            ip("-n", name, "link", "set", DEVICE, "up")
            shape = ("root", "tbf", "rate", self._rate, "burst", BURST, "latency", LATENCY)
            ip("netns", "exec", name, "tc", "qdisc", "add", "dev", DEVICE, *shape)

    def __exit__(self, *_: object) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)

    def at(self, end: int) -> list[str]:
        """What starts a program at one end of it."""
        return ["ip", "netns", "exec", self.names[end]]

    def agent(self, folder: Path) -> str:
        """A program that takes ssh's arguments, and runs what they say at the end whose address they name.
        There the machine has another name: launchers take those of one name for one."""
        here, there = self.names
        path = folder / "agent"
        path.write_text(
            f"""#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
case $1 in {ADDRESSES[0]}) name={here} ;; *) name={there} ;; esac
shift
exec ip netns exec "$name" unshare --uts sh -c "hostname $name; $*"
"""
        )
        path.chmod(0o700)
        return str(path)


def ip(*words: str) -> None:
    try:
        ran = subprocess.run(["ip", *words], capture_output=True, text=True)
    except FileNotFoundError as missing:
        raise Failed("iproute2 is not installed") from missing
    if ran.returncode != 0:
        raise Failed(f"ip {' '.join(words)}: {ran.stderr.strip()}")
