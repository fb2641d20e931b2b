"""Karpenter's own scheduling benchmark, built once from its Go module, and what it takes of the CPU."""

import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.apiserver import karpenter_build, module_build
from tests.apiserver.binaries import Unavailable, cache_home

PACKAGE = "./pkg/controllers/provisioning/scheduling/"
TAG = "test_performance"
SMALLEST = 1  # pods: what the program takes before it schedules any


def cpu_seconds(pods: int) -> float:
    """What one scheduling of its mix with so many pods takes, its start apart. Raises Unavailable without Go."""
    program = _program()
    return _run(program, pods) - _run(program, SMALLEST)


def _run(program: Path, pods: int) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(program), "-test.run", "^$", "-test.bench", f"^BenchmarkScheduling{pods}$", "-test.benchtime", "1x"]
    try:
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, timeout=900)
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"Karpenter's benchmark does not run: {error}") from error
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _program() -> Path:
    """A module in Go's cache cannot be written to, so that a copy of it is built."""
    source = module_build.module_source(karpenter_build.KWOK, karpenter_build.MODULE, os.environ)
    target = cache_home(os.environ) / "bench" / source.name / "scheduling.test"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "module")
        shutil.copytree(source, copy, copy_function=shutil.copyfile)
        for path in (copy, *(each for each in copy.rglob("*") if each.is_dir())):
            path.chmod(0o755)
        unfinished = target.with_suffix(".unfinished")
        command = ["go", "test", f"-tags={TAG}", "-c", "-o", str(unfinished), PACKAGE]
        try:
            subprocess.run(command, cwd=copy, env=os.environ | {"GOTOOLCHAIN": "local"}, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Unavailable(f"Karpenter's benchmark cannot be built: {error}") from error
        unfinished.replace(target)
    return target
