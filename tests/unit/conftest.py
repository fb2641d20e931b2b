import sys
from pathlib import Path

import pytest

from tests.support.command_line import Done, Run


@pytest.fixture
def headroom(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process, under the name that it is `called` by."""

    def run(*arguments: str | Path, called: str = "headroom") -> Done:
        from deploy import cli  # here, as most unit tests do without

        monkeypatch.setattr(sys, "argv", [called, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return Done(int(ended.value.code or 0), *capsys.readouterr())

    return run
