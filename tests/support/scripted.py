"""A server in a process of its own, whose folder is all that a test and it have in common.

FOLDER/script.json says how it answers, and is read at every call. What it was asked stands in FOLDER/calls, one JSON a
line; its port in FOLDER/port.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import eventually

Script = dict[str, Any]
ROOT = Path(__file__).parents[2]


class ScriptedProcess:
    """The test's end of `python -m tests.support.MODULE FOLDER`."""

    def __init__(self, module: str, folder: Path) -> None:
        self.folder = folder
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None

    def script(self, **script: Any) -> None:
        _write(self.folder / "script.json", json.dumps(script))

    def start(self) -> None:
        command = [sys.executable, "-m", f"tests.support.{self._module}", str(self.folder)]
        process = self._process = subprocess.Popen(command, cwd=ROOT)
        eventually(lambda: process.poll() is not None or (self.folder / "port").exists(), 60)
        assert process.poll() is None

    @property
    def port(self) -> str:
        return (self.folder / "port").read_text()

    @property
    def asked(self) -> list[Any]:
        lines = (self.folder / "calls").read_text().split("\n")[:-1]  # the last one may be half written
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(20)


class ScriptedServer:
    """The server's end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def record(self, asked: object, hangs: Callable[[Script], object]) -> Script:
        """The script for a call, which is written down; where the script `hangs`, once that is another one."""
        with self._lock, (self.folder / "calls").open("a") as calls:
            calls.write(json.dumps(asked) + "\n")
        written = self._written()
        script: Script = json.loads(written)
        while hangs(script) and self._written() == written:
            time.sleep(0.02)
        return script

    def announce(self, port: int) -> None:
        _write(self.folder / "port", str(port))

    def _written(self) -> str:
        return (self.folder / "script.json").read_text()


def _write(file: Path, text: str) -> None:
    """At once."""
    new = file.with_name(f"{file.name}.new")
    new.write_text(text)
    new.rename(file)
