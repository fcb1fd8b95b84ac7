"""`evolver dashboard`: shows the runs of a folder in the browser, on this machine only."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from dashboards.theme import BLUE, DARK_ACCENT, DARK_PAGE, LIGHT_PAGE
from evolver.errors import NotReady, UsageError

FIRST_PORT, LAST_PORT = 8501, 8599
HOST = "127.0.0.1"
STOP_S = 5.0
FLAGS = (
    f"--server.address={HOST}",
    f"--server.allowedHosts={HOST}",  # Host and Origin of a WebSocket must be among these, else 403
    "--server.allowedHosts=localhost",
    "--server.enableCORS=true",
    "--server.enableXsrfProtection=true",
    "--server.enableStaticServing=false",
    "--server.enableAgentApi=false",
    "--server.headless=true",
    "--server.fileWatcherType=none",
    f"--browser.serverAddress={HOST}",
    "--browser.gatherUsageStats=false",
    "--client.showErrorDetails=none",
    "--client.toolbarMode=viewer",
    f"--theme.light.primaryColor={BLUE}",
    f"--theme.dark.primaryColor={DARK_ACCENT}",
    f"--theme.light.backgroundColor={LIGHT_PAGE}",
    f"--theme.dark.backgroundColor={DARK_PAGE}",
    "--logger.level=error",
    "--logger.hideWelcomeMessage=true",
)


def dashboard(
    runs: Annotated[Path, typer.Argument(help="A run directory, or a folder of runs.")] = Path("runs"),
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show only: nothing can be proposed or frozen.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="Port; the first free one from 8501 if absent.", min=1, max=65535)
    ] = None,
) -> None:
    """Shows a run, or every run of a folder, in the browser, on this machine only. Ctrl-C ends it.

    The pages only read; two of them act when asked: Propose queues a candidate, Freeze starts `evolver freeze`.

    \b
    Examples:
      evolver dashboard runs/demo          one run
      evolver dashboard runs --port 8600   every run of a folder
      evolver dashboard runs --read-only   nothing can be proposed or frozen from there
    """
    if runs != Path("runs") and not runs.is_dir():
        raise UsageError(f"{runs} is no directory: give a run or a folder of runs (`make demo` makes runs/demo)")
    chosen = _free_port() if port is None else _checked(port)
    signal.signal(signal.SIGTERM, _terminated)
    child = subprocess.Popen(command(chosen), env=environment(runs, read_only))
    print(f"http://{HOST}:{chosen}", flush=True)  # noqa: T201
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = 130
    finally:
        _end(child)
    raise typer.Exit(code)


def _terminated(*_: object) -> None:
    raise SystemExit(143)


def command(port: int) -> list[str]:
    """The server's command line. Safety settings are flags, since a config file is sought in the working directory."""
    if importlib.util.find_spec("streamlit") is None:
        raise NotReady("the dashboard needs Streamlit: pip install -e '.[dashboard]'")
    script = str(Path(__file__).parent / "entry" / "dashboard.py")
    return [sys.executable, "-P", "-m", "dashboards.serve", "run", script, f"--server.port={port}", *FLAGS]


def environment(runs: Path, read_only: bool = False) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    limits = {"EVOLVER_READ_ONLY": "1"} if read_only else {}
    return {**os.environ, "EVOLVER_RUNS_DIR": str(runs.resolve()), "PYTHONPATH": os.pathsep.join(paths), **limits}


def _free_port() -> int:
    for port in range(FIRST_PORT, LAST_PORT + 1):
        if _is_free(port):
            return port
    raise NotReady(f"no free port in {FIRST_PORT}..{LAST_PORT}: stop another dashboard or give --port")


def _checked(port: int) -> int:
    if not _is_free(port):
        raise UsageError(f"port {port} is taken: choose another --port, or leave it out")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """A terminal sends Ctrl-C to the child as well; one that lingers is killed."""
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


if __name__ == "__main__":
    typer.run(dashboard)
