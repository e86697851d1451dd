"""What tests of Ctrl-C share: a command on a terminal, interrupted once its stderr shows something."""

import os
import pty
import re
import signal
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]


def _heeding() -> None:
    """Heed Ctrl-C, which what a shell started in the background is born to ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def interrupted(command: list[str], *, at: bytes) -> tuple[int, str, str]:
    """Run a command on a terminal, press Ctrl-C at a pattern, wait for its end.

    Returns:
        Its status, its standard output and what the terminal showed of stderr.
    """
    terminal, stderr = pty.openpty()
    termios.tcsetwinsize(stderr, (24, 200))
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=stderr,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=_heeding,
    ) as ran:
        os.close(stderr)
        seen, pressed = b"", False
        with suppress(OSError):  # how a terminal says that nobody is on the other side any more
            while True:
                seen += os.read(terminal, 4096)
                if not pressed and re.search(at, seen):
                    pressed = True
                    ran.send_signal(signal.SIGINT)
        said = ran.communicate(timeout=60)[0]
    os.close(terminal)
    assert pressed, seen
    return ran.returncode, said, seen.decode()
