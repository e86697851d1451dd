"""Start JupyterLab on a free loopback port, and stop it by its own process group."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

WAIT_MS = 60_000
Open = Callable[..., Any]
"""Writes a notebook of some cells on a server, runs it, and gives its page."""
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "@jupyterlab/docmanager-extension:plugin": {"autosave": False},
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
"""No pop-ups, no autosave, and every cell stays in the page when it is scrolled away."""


@contextlib.contextmanager
def server(root: Path, *, theme: str = "JupyterLab Light") -> Iterator[tuple[str, str]]:
    """Run a server over a folder; gives its address and token."""
    token = secrets.token_hex(16)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as home, (Path(home) / "lab.log").open("w+") as log:
        process = subprocess.Popen(
            _command(Path(home), root, port=port, token=token, theme=theme),
            env=_environment(Path(home)),
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            if not _answers(f"{address}/api?token={token}", process):
                raise RuntimeError(
                    f"JupyterLab did not start:\n{Path(log.name).read_text()[-3000:]}"
                )
            yield address, token
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def _command(home: Path, root: Path, *, port: int, token: str, theme: str) -> list[str]:
    settings = home / "app"
    settings.mkdir()
    themed = SETTINGS | {"@jupyterlab/apputils-extension:themes": {"theme": theme}}
    (settings / "overrides.json").write_text(json.dumps(themed))
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={root}",
        f"--LabApp.app_settings_dir={settings}",
        "--LabApp.news_url=None",
        "--ServerApp.terminals_enabled=False",
        "--LabApp.extension_manager=readonly",
    ]


def _environment(home: Path) -> dict[str, str]:
    mine = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTERLAB_SETTINGS_DIR": "user-settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "IPYTHONDIR": "ipython",
    }
    return dict(os.environ) | {name: str(home / folder) for name, folder in mine.items()}


def _answers(url: str, process: subprocess.Popen[bytes], *, within_s: float = 60) -> bool:
    """Wait for the server's first answer."""
    end = time.monotonic() + within_s
    while process.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                answer.read()
            return True
        except OSError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
    return False
