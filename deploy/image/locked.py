"""Prints the part of requirements.lock that one purpose needs, hashes included.

usage: python deploy/image/locked.py {agent|manager|command|build}

The lock is one for all purposes. `agent` and `manager` begin at the dependency group of that name in pyproject.toml,
which lists what the process imports; `command` begins at `project.dependencies` and COMMAND_EXTRAS, for those who only
call the command line; `build` begins at `build-system.requires`. What they need in turn is written in the lock itself,
as "via" comments.
"""

import re
import sys
import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements.lock"
PROJECT = ROOT / "pyproject.toml"

COMPONENTS = ("agent", "manager")
COMMAND_EXTRAS = ("top",)

# Who needs whom by an extra that the images do not ask for; the lock names no extras. textual asks for this one.
OPTIONAL = {("markdown-it-py", "linkify-it-py")}

_PINNED = re.compile(r"([a-z0-9][a-z0-9-]*)==\S+(?: ; [^\\]+)? \\$")
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
_VIA = re.compile(r"    # via(?: (\S.*))?$|    #   (\S.*)$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Pin:
    """One version of one package: its lines in the lock, and the names of those that need it."""

    name: str
    lines: list[str]
    needed_by: list[str] = field(default_factory=list)


def pins(lock: str) -> list[Pin]:
    """Every entry of a lock. Raises ValueError naming the line that is not understood."""
    found: list[Pin] = []
    for number, line in enumerate(lock.splitlines(), start=1):
        if match := _PINNED.match(line):
            found.append(Pin(match[1], [line]))
        elif found and _HASH.match(line):
            found[-1].lines.append(line)
        elif found and (match := _VIA.match(line)):
            found[-1].needed_by.extend(name for name in match.groups() if name)
        else:
            raise ValueError(f"requirements.lock, line {number}: not understood: {line!r}")
    return found


def closure(of: Iterable[str], lock: Collection[Pin]) -> list[Pin]:
    """The pins of these packages and of all that they need. Raises ValueError for a package that is not in the lock."""
    wanted: set[str] = set()
    reached = {_normalized(requirement) for requirement in of}
    while reached:
        if missing := reached - {pin.name for pin in lock}:
            raise ValueError(f"requirements.lock: {', '.join(sorted(missing))} is not in it")
        wanted |= reached
        needed = (
            pin.name for pin in lock for by in reached.intersection(pin.needed_by) if (by, pin.name) not in OPTIONAL
        )
        reached = set(needed) - wanted
    return [pin for pin in lock if pin.name in wanted]


def _normalized(requirement: str) -> str:
    """The name of a requirement such as "PyYAML>=6.0", as the lock spells it."""
    match = _NAME.match(requirement)
    if match is None:
        raise ValueError(f"pyproject.toml: {requirement!r} begins with no package's name")
    return re.sub(r"[-_.]+", "-", match[0]).lower()


def requirements(purpose: str) -> list[str]:
    """What a purpose begins at, as pyproject.toml has it."""
    document = tomllib.loads(PROJECT.read_text())
    if purpose == "build":
        return list(document["build-system"]["requires"])
    if purpose in COMPONENTS:
        return list(document["dependency-groups"][purpose])
    optional = document["project"]["optional-dependencies"]
    by_extras = [name for extra in COMMAND_EXTRAS for name in optional[extra]]
    return [*document["project"]["dependencies"], *by_extras, *(name for _, name in OPTIONAL)]


def main() -> None:
    if sys.argv[1:] not in [[purpose] for purpose in (*COMPONENTS, "command", "build")]:
        sys.exit(__doc__)
    try:
        chosen = closure(requirements(sys.argv[1]), pins(LOCK.read_text()))
    except ValueError as error:
        sys.exit(f"locked.py: {error}")
    print(*(line for pin in chosen for line in pin.lines), sep="\n")


if __name__ == "__main__":
    main()
