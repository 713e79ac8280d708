"""Run a program as a person at a terminal does: its output goes to a pseudo-terminal of a given width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def at_terminal(command, *, columns=80, error_only=False, cwd=None, timeout=120):
    """Return the exit code and all that was written to the terminal, without its control sequences.

    With `error_only`, standard output is thrown away, and standard error alone is the terminal.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "CI", "TERM")}
    environment |= {
        "TERM": "xterm-256color",
        "PYTHONPATH": os.pathsep.join([str(Path("src").resolve()), str(Path.cwd())]),
    }
    process = subprocess.Popen(
        [str(part) for part in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL if error_only else slave,
        stderr=slave,
        env=environment,
        cwd=cwd,
    )
    os.close(slave)
    written = b""
    try:
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # the last that had the terminal open has gone
                break
            if not part:
                break
            written += part
        code = process.wait(timeout)
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return code, _CONTROL.sub("", written.decode(errors="replace"))
