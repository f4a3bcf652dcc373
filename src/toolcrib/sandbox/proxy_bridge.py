"""Runs a command inside the sandbox, with a TCP port that leads to the proxy's socket file.

Runs as a program on a bare interpreter, with the command in ``sys.argv[1:]``; imports only the standard library. It has
no more privileges than the command: the proxy outside checks everything that it forwards.
"""

import os
import socket
import subprocess
import sys
import threading

PORT = 3128
PLACE = "/run/toolcrib/egress.sock"


def main() -> None:
    with socket.create_server(("127.0.0.1", PORT), backlog=64) as listener:
        threading.Thread(target=_accept, args=(listener,), daemon=True).start()
        code = subprocess.run(sys.argv[1:], check=False).returncode  # noqa: S603 - the command itself
        sys.stdout.flush()
        os._exit(code if code >= 0 else 128 - code)


def _accept(listener: socket.socket) -> None:
    while True:
        near, _ = listener.accept()
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(PLACE)
        except OSError:
            near.close()
            continue
        for one, other in ((near, far), (far, near)):
            threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(1 << 16):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        target.close()


if __name__ == "__main__":
    main()
