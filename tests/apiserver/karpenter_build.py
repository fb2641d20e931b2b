"""Karpenter with its kwok provider, built once from its Go module, and its custom resource definitions.

The definitions come with the module, and stand beside the program in the cache.
"""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.apiserver import binaries
from tests.apiserver.binaries import MODULES, Tool, Unavailable

MODULE = "sigs.k8s.io/karpenter"
KWOK = Tool("karpenter", f"{MODULE}/kwok", MODULES / "karpenter")
_DEFINITIONS = (Path("pkg", "apis", "crds"), Path("kwok", "apis", "crds"))


@dataclass(frozen=True)
class BuiltKarpenter:
    """The program, and the folder with its definitions."""

    program: Path
    definitions: Path


def built_karpenter(environment: Mapping[str, str]) -> BuiltKarpenter:
    """Raises Unavailable where it cannot be built."""
    program = binaries.built_once(KWOK, environment)
    folder = program.with_name("definitions")
    if not folder.exists():
        unfinished = folder.with_name("definitions.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        source = _source(environment)
        for path in (path for part in _DEFINITIONS for path in sorted((source / part).glob("*.yaml"))):
            shutil.copyfile(path, unfinished / path.name)
        unfinished.rename(folder)
    return BuiltKarpenter(program, folder)


def _source(environment: Mapping[str, str]) -> Path:
    """Where Go keeps the module."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
    try:
        done = subprocess.run(command, cwd=KWOK.module, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"the definitions of {KWOK.name} cannot be found: {error}") from error
    return Path(done.stdout.strip())
