"""A dashboard server of its own for benchmarks and tests: a free port on loopback, a store in a temporary folder."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Server", "running"]

ROOT: Final = Path(__file__).resolve().parents[2]
START: Final = 60.0
"""Longest wait for a server to answer [s]."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    address: str
    process: int
    log: Path

    def resident(self) -> float:
        """Memory of the server that is resident now [MiB]."""
        for line in Path(f"/proc/{self.process}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024  # given in KiB
        raise RuntimeError("The kernel does not say how much memory the server has.")

    def faults(self) -> list[str]:
        """Lines of the log that tell of an error."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "Traceback" in line or "Error" in line]


@contextmanager
def running(*options: str, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Starts a server and stops it at the end, whatever happens.

    options: of Streamlit's command line. variables: of its environment, beside this process's own.
    """
    with tempfile.TemporaryDirectory() as folder:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        log = Path(folder) / "log.txt"
        command = [
            sys.executable,
            "-m",
            "streamlit",
            "run",
            str(ROOT / "app.py"),
            "--server.port",
            str(port),
            "--server.address",
            "127.0.0.1",
            *options,
        ]
        environment = {**os.environ, "SHARDSCAPE_STORE": str(Path(folder) / "results.duckdb"), **(variables or {})}
        with log.open("w") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT)
            try:
                address = f"http://127.0.0.1:{port}"
                _wait(address, process, log)
                yield Server(address, process.pid, log)
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait(20)


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    latest = time.monotonic() + START
    while time.monotonic() < latest:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
                if answer.read() == b"ok":
                    return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"The server did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")
