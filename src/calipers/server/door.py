"""Who may talk to a server: those who mean this machine, and know the token if there is one."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Door:
    """Where a server listens, and the token it demands."""

    host: str = "127.0.0.1"
    token: str | None = None

    def knows(self, header: str) -> bool:
        """Whether a Host header means this server; that of a web page which had its name point here does not.

        >>> Door().knows("localhost:8000"), Door().knows("[::1]:80"), Door().knows("evil.example")
        (True, True, False)
        """
        name = header.strip().lower()
        name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
        if name in {"localhost", self.host.lower()}:
            return True
        try:  # a number cannot be made to point elsewhere, as a name can
            return ipaddress.ip_address(name).is_loopback or not self.local
        except ValueError:
            return not self.local and name == socket.gethostname().lower()

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
