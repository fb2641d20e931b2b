"""`make quick`: runs the tests that a change touches, the nearest by import first, for half a minute at most.

A change is what differs from the last commit that main has, and files that git does not know yet.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import grimp

from tests.support import budgets
from tests.support.apiserver import EMBEDDED, ROOT

PACKAGES = ("agent", "deploy", "manager", "shared", "tests")
# Summed over the files. Several run at once, and starting and collecting takes time as well.
TOTAL_SECONDS = 40.0
FILE_SECONDS = 15.0
UNKNOWN_SECONDS = 2.0  # of a file that has no share yet

# What is no module, and the tests that read it.
READERS = {
    "deploy/Dockerfile": "tests/image/test_dockerfile.py",
    "deploy/helm": "tests/chart",
    "deploy/image": "tests/image/test_dockerfile.py",
    "requirements.lock": "tests/image/test_dockerfile.py",
    "tests/conformance/data": "tests/conformance",
    "tests/parity/recorded": "tests/parity",
}
# Builds for a minute; no part of `make test` either.
LEFT_OUT = {f"tests/image/test_{name}.py" for name in ("image", "release", "workflow")}


def changed() -> list[str]:
    """Files, relative to the repository."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    return [*_git("diff", "--name-only", base[0]), *_git("ls-files", "--others", "--exclude-standard")]


def touched(files: Iterable[str], graph: grimp.ImportGraph) -> dict[str, int]:
    """Test files with their distance from the change: 0 are changed themselves, 1 import what is changed."""
    distances: dict[str, int] = {}
    modules: set[str] = set()
    for file in files:
        if file.endswith(".py") and (module := _module(file)) in graph.modules:
            modules.add(module)
        for prefix, readers in READERS.items():
            if file.startswith(prefix):
                distances |= dict.fromkeys(_tests_in(readers), 1)
    seen = set(modules)
    for distance in itertools.count():
        if not modules:
            return distances
        for module in modules:
            for file in _tests_of(module, distance):
                distances.setdefault(file, distance)
        modules = {above for module in modules for above in graph.find_modules_that_directly_import(module)} - seen
        seen |= modules
    raise AssertionError


def chosen(distances: Mapping[str, int], seconds: budgets.Seconds) -> Iterator[str]:
    """The nearest that fit into the time, of equally near ones the quickest first."""
    left = TOTAL_SECONDS
    for file in sorted(distances, key=lambda file: (distances[file], seconds.get(file, UNKNOWN_SECONDS), file)):
        takes = seconds.get(file, UNKNOWN_SECONDS)
        if distances[file] == 0 or (takes <= FILE_SECONDS and takes <= left):
            left -= takes
            yield file


def _tests_of(module: str, distance: int) -> list[str]:
    """The file of a test module, and all beside and below a conftest. That of all tests is only looked at when it is
    changed itself: it imports too much.
    """
    *folder, name = module.split(".")
    if folder[:1] != ["tests"]:
        return []
    if name == "conftest" and (len(folder) > 1 or distance == 0):
        return _tests_in("/".join(folder))
    return _tests_in(module.replace(".", "/") + ".py") if name.startswith("test_") else []


def _tests_in(path: str) -> list[str]:
    place = ROOT / path
    files = place.rglob("test_*.py") if place.is_dir() else [place]
    return sorted({str(file.relative_to(ROOT)) for file in files if file.exists()} - LEFT_OUT)


def _module(file: str) -> str:
    return ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def main() -> None:
    distances = touched(changed(), grimp.build_graph(*PACKAGES))
    files = list(chosen(distances, budgets.read(EMBEDDED)))
    if left := len(distances) - len(files):
        print(f"{len(files)} test files of {left + len(files)} that the change touches; make test runs the others")
    if not files:
        print("no test imports what has changed")
        return
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *files])


if __name__ == "__main__":
    main()
