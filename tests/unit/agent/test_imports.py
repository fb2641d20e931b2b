"""The agent runs on every node, so what it loads is paid for everywhere."""

import subprocess
import sys


def test_the_agent_loads_no_heavy_module_it_does_not_need() -> None:
    heavy = ("kubernetes", "rich", "typer", "psutil", "boto3", "grpc", "pandas", "manager", "deploy")
    code = f"import sys, agent.main; print([name for name in {heavy!r} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
