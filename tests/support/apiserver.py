"""The embedded API server as tests run it: a real process on a real socket, with scripted faults."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from shared.kube.client import Client
from shared.kube.config import Connection, StaticToken
from shared.kube.retry import Jitter, Retry
from tests.support import eventually

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "integration"


class ApiServer:
    """The embedded API server in a process of its own, on one port and one data directory for its whole life."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._token_file = directory / "token"
        self._token_file.write_text(TOKEN)
        self._process: subprocess.Popen[bytes] | None = None
        self._listen = "127.0.0.1:0"
        self.url = ""
        self.start()

    def start(self) -> None:
        ready = self._directory / "ready"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "deploy.local.apiserver", "--listen", self._listen]
        command += ["--data-dir", str(self._directory / "data"), "--token-file", str(self._token_file)]
        command += ["--crd-dir", "deploy/helm/headroom/crds", "--ready-file", str(ready)]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
        self.url = eventually(lambda: ready.exists() and ready.read_text().strip(), 20) or ""
        self._listen = self.url.removeprefix("http://")

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        if self._process is not None:
            os.kill(self._process.pid, how)
            self._process.wait(10)
            self._process = None

    def client(self) -> Client:
        """A client that hurries."""
        quick = Retry(deadline_seconds=10, jitter=Jitter(0.02, 0.2))
        return Client(Connection(self.url, StaticToken(TOKEN)), "test", retry=quick)

    def fault(self, *rules: dict[str, Any]) -> None:
        """From now on these, and only these, go wrong; of several that match, the first acts and is used up."""
        self._post("_faults", list(rules))

    def heal(self) -> None:
        self.fault()

    def compact(self) -> None:
        """Forgets the history: watches and lists from older versions are told 410."""
        self._post("_compact", None)

    def _post(self, path: str, body: object) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        httpx.post(f"{self.url}/{path}", json=body, headers=headers).raise_for_status()


def rule(action: str, path: str = "", *, method: str = "", times: int = 1, **more: object) -> dict[str, Any]:
    """A fault for the next `times` requests whose path and query match; 0 means all of them."""
    return {"action": action, "match": {"path": path, "method": method}, "times": times} | more
