#!/usr/bin/python3
"""The proxy in the sidecar that `make test-docker` builds for Harbor's network policies; it replaces Harbor's own.

Harbor's rules redirect every connection to this proxy. It forwards connections to addresses on Harbor's list, with the
mark that Harbor's rules require, and closes all others. It checks only addresses, not names. It runs with the minimal
Python of the test's image.
"""

from __future__ import annotations

import socket
import threading
from pathlib import Path

LISTED = Path("/opt/egress-sidecar/allowlist.txt")
PORT, MARK = 12345, 114514  # as in Harbor's own configuration of its proxy
ORIGINAL_DESTINATION, SOCKET_MARK = 80, 36  # Linux's socket options, for which Python has no names


def forward(client: socket.socket) -> None:
    """Forward one connection to its original destination, if that is on the list."""
    with client:
        address = client.getsockopt(socket.SOL_IP, ORIGINAL_DESTINATION, 16)
        host, port = socket.inet_ntoa(address[4:8]), int.from_bytes(address[2:4], "big")
        if host not in LISTED.read_text().split():
            return
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, SOCKET_MARK, MARK)
            server.connect((host, port))
            threading.Thread(target=copy, args=(client, server), daemon=True).start()
            copy(server, client)


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy data until the source ends."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # one side closed the connection


def main() -> None:
    """Serve until the container ends."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("", PORT))
        listener.listen()
        while True:
            threading.Thread(target=forward, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
