"""A manager as a process of its own, which can be killed and paused."""

import json
import signal
from pathlib import Path

import httpx

from tests.support import eventually
from tests.support.daemons import Daemon
from tests.support.local_http import LOCAL_HTTP

START_SECONDS = 120.0


class ManagerProcess:
    """One replica, whose name is its identity in the Lease."""

    def __init__(self, name: str, kubeconfig: str, namespace: str, directory: Path, **flags: str) -> None:
        self.name = name
        self._log = directory / f"{name}.log"
        chosen = {"kubeconfig": kubeconfig, "namespace": namespace, "identity": name, "listen": "127.0.0.1:0"} | flags
        options = [f"--{flag.replace('_', '-')}={value}" for flag, value in chosen.items()]
        with self._log.open("wb") as output:
            self._process = Daemon("manager", *options, "--log-format=json", stderr=output)
        self.url = eventually(self._announced_url, START_SECONDS)

    def signal(self, how: signal.Signals) -> None:
        self._process.send_signal(how)

    def close(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def get(self, path: str) -> httpx.Response:
        return LOCAL_HTTP.get(f"{self.url}{path}")

    def leads(self) -> bool:
        """Whether it says that it may write."""
        return bool(self.get("/api/v1/status").json()["leader"])

    def counted(self, prefix: str) -> float:
        """The sum of all its samples that begin so."""
        lines = self.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"headroom_manager_{prefix}"))

    def said(self, message: str) -> int:
        """How often it logged this."""
        return sum(line["msg"].startswith(message) for line in self._lines())

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))

    def _announced_url(self) -> str:
        assert self._process.poll() is None, self._log.read_text()
        return next((line["url"] for line in self._lines() if line["msg"] == "manager started"), "")

    def _lines(self) -> list[dict[str, str]]:
        # The last line may be half written.
        return [json.loads(line) for line in self._log.read_text().split("\n")[:-1] if line.startswith("{")]
