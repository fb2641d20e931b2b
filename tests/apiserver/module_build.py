"""Controllers of others, each built once from its Go module, with its custom resource definitions.

The definitions come with the module, and stand beside the program in the cache.
"""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.apiserver import binaries
from tests.apiserver.binaries import Tool, Unavailable


@dataclass(frozen=True)
class BuiltController:
    """The program, and the folder with its definitions."""

    program: Path
    definitions: Path


def built_controller(
    tool: Tool, module: str, folders: Sequence[Path], environment: Mapping[str, str]
) -> BuiltController:
    """With the definitions in these `folders` of the module. Raises Unavailable where it cannot be built."""
    program = binaries.built_once(tool, environment)
    folder = program.with_name("definitions")
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp(prefix="definitions.", dir=program.parent))
        source = module_source(tool, module, environment)
        for path in (path for part in folders for path in sorted((source / part).glob("*.yaml"))):
            shutil.copyfile(path, unfinished / path.name)
        try:
            unfinished.rename(folder)
        except OSError:  # another process has copied them meanwhile
            shutil.rmtree(unfinished)
    return BuiltController(program, folder)


def module_source(tool: Tool, module: str, environment: Mapping[str, str]) -> Path:
    """Where Go keeps the module, which it downloads if it is not there. Raises Unavailable."""
    command = ["go", "mod", "download", "-json", module]
    try:
        done = subprocess.run(command, cwd=tool.module, env=environment, check=True, stdout=subprocess.PIPE, text=True)
        return Path(json.loads(done.stdout)["Dir"])
    except (OSError, subprocess.CalledProcessError, ValueError, LookupError) as error:
        raise Unavailable(f"the source of {tool.name} cannot be had: {error}") from error
