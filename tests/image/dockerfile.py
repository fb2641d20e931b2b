"""Reads deploy/Dockerfile and carries out its steps in a plain folder, where no container engine exists.

Of the language it knows what that file uses, and refuses the rest.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

_INSTRUCTION = re.compile(r"([A-Z]+)\s+((?:--\S+\s+)*)(.+)", re.DOTALL)
_KNOWN = {"ARG", "FROM", "ENV", "RUN", "WORKDIR", "COPY", "LABEL", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT"}
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_ABSOLUTE = re.compile(r"(?<![^\s:=,])/(?=\w)")  # at the beginning of a word, of a list's part, of a variable's value


@dataclass(frozen=True)
class Instruction:
    """One instruction, its flags taken off: `RUN --mount=type=cache command` has value "command"."""

    keyword: str
    flags: tuple[str, ...]
    value: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.value)

    @property
    def pairs(self) -> dict[str, str]:
        """KEY=VALUE ... as of ENV, LABEL and ARG; a key alone has an empty value."""
        return {key: value for key, _, value in (word.partition("=") for word in self.words)}

    def flag(self, name: str) -> str | None:
        return next((flag.partition("=")[2] for flag in self.flags if flag.startswith(f"--{name}=")), None)


@dataclass(frozen=True)
class Stage:
    """From one FROM to the next. `base` is an image or the name of a stage before it."""

    base: str
    name: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, keyword: str) -> list[Instruction]:
        return [instruction for instruction in self.instructions if instruction.keyword == keyword]

    def pairs(self, keyword: str) -> dict[str, str]:
        return {key: value for instruction in self.all(keyword) for key, value in instruction.pairs.items()}


@dataclass(frozen=True)
class Dockerfile:
    """What comes before the first FROM, and the stages."""

    arguments: dict[str, str]
    stages: list[Stage]

    def stage(self, name: str) -> Stage:
        """The stage that `FROM ... AS name` begins."""
        return next(stage for stage in self.stages if stage.name == name)

    def lineage(self, stage: Stage) -> list[Stage]:
        """The stage, after those that it is built upon."""
        base = next((other for other in self.stages if other.name == stage.base), None)
        return [*self.lineage(base), stage] if base else [stage]

    def needed(self, stage: Stage) -> list[Stage]:
        """The stage, after those that it is built upon and those that they copy from, in the order of the file."""
        upon = self.lineage(stage)
        copied = [self.stage(name) for each in upon for copy in each.all("COPY") if (name := copy.flag("from"))]
        wanted = {each.name for part in (stage, *copied) for each in self.lineage(part)}
        return [each for each in self.stages if each.name in wanted]


def parse(text: str) -> Dockerfile:
    """Raises ValueError for what is no instruction, or is none of those that are known here."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        match = _INSTRUCTION.fullmatch(line)
        if match is None or match[1] not in _KNOWN:
            raise ValueError(f"not understood: {line!r}")
        instruction = Instruction(match[1], tuple(match[2].split()), match[3])
        if instruction.keyword == "FROM":
            base, *name = instruction.words
            stages.append(Stage(base, name[1] if name else ""))
        elif stages:
            stages[-1].instructions.append(instruction)
        else:
            arguments |= instruction.pairs
    return Dockerfile(arguments, stages)


def context(source: Path) -> list[Path]:
    """The files below `source`, relative to it, that its .dockerignore lets through."""
    patterns = [line for line in (source / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]

    def included(path: str) -> bool:
        verdict = True
        for pattern in patterns:
            if _matches(pattern.removeprefix("!"), path):
                verdict = pattern.startswith("!")
        return verdict

    found: list[Path] = []
    for top in filter(included, sorted(os.listdir(source))):
        files = [source / top] if (source / top).is_file() else (source / top).rglob("*")
        found += (path for file in files if file.is_file() and included(str(path := file.relative_to(source))))
    return found


def _matches(pattern: str, path: str) -> bool:
    """As Docker does: a pattern also speaks for everything below what it matches."""
    expression = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.fullmatch(f"{expression}(?:/.*)?", path) is not None


class PlainFolder:
    """The steps of a Dockerfile, the stages of a target in one `root`, which stands for "/" where a step names a path.

    In place of the base image comes a copy of the interpreter that runs this, without bytecode, as in the base image.
    """

    def __init__(self, root: Path, source: Path, dockerfile: Dockerfile) -> None:
        self.root = root
        self.output = ""
        self._source = source
        self._dockerfile = dockerfile
        self._context = root / "context"
        copy_interpreter(root)
        for file in context(source):
            (self._context / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / file, self._context / file)

    def build(self, target: Stage) -> None:
        """Carries out every stage that `target` needs. Raises AssertionError with the output where a step fails."""
        folders: dict[str, Path] = {}
        for stage in self._dockerfile.needed(target):
            folder = folders.get(stage.base, self.root)
            for instruction in stage.instructions:
                if instruction.keyword == "WORKDIR":
                    folder = Path(self._moved(instruction.value))
                    folder.mkdir(parents=True)
                elif instruction.keyword == "COPY" and not instruction.flag("from"):
                    self._copy(instruction.words, folder)
                elif instruction.keyword == "RUN":
                    self._run(stage, instruction, folder)
            folders[stage.name] = folder

    def environment(self, stage: Stage) -> dict[str, str]:
        """What ENV makes of the base image's PATH, in this stage and those that it is built upon."""
        local = self.root / "usr" / "local"
        # The copied interpreter may name a shared library where it was built; the base image's finds it beside itself.
        made = {"PATH": f"{local / 'bin'}:/usr/bin:/bin", "LD_LIBRARY_PATH": str(local / "lib")}
        for part in self._dockerfile.lineage(stage):
            for key, value in part.pairs("ENV").items():
                made[key] = _VARIABLE.sub(lambda match: made[match[1]], self._moved(value))
        return made

    def _moved(self, text: str) -> str:
        return _ABSOLUTE.sub(f"{self.root}/", text)

    def _run(self, stage: Stage, instruction: Instruction, folder: Path) -> None:
        for flag in instruction.flags:
            mount = dict(part.split("=", 1) for part in flag.removeprefix("--mount=").split(","))
            if mount["type"] == "bind":
                Path(self._moved(mount["target"])).symlink_to(self._context / mount["source"])
        done = subprocess.run(
            ["sh", "-c", self._moved(instruction.value)],
            cwd=folder,
            env=os.environ | self.environment(stage),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.output += done.stdout
        if done.returncode:
            raise AssertionError(f"RUN {instruction.value}: exit status {done.returncode}\n{done.stdout}")

    def _copy(self, words: list[str], folder: Path) -> None:
        *sources, target = words
        for source in (self._context / word for word in sources):
            if source.is_dir():
                shutil.copytree(source, folder / target)
            else:
                shutil.copy(source, folder / target)


def copy_interpreter(root: Path) -> None:
    """Copies the interpreter that runs this below `root`, without bytecode, as a base image has it."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    source, target = Path(sys.base_prefix), root / "usr" / "local"
    (target / "bin").mkdir(parents=True)
    shutil.copy(source / "bin" / name, target / "bin" / name)
    (target / "bin" / "python3").symlink_to(name)
    left_out = shutil.ignore_patterns(
        "__pycache__", "test", "tests", "idle_test", "site-packages", "dist-packages", "*.a"
    )
    shutil.copytree(source / "lib" / name, target / "lib" / name, ignore=left_out)
    for library in (source / "lib").glob("libpython3*.so*"):
        shutil.copy(library, target / "lib" / library.name)


def exec_form(instruction: Instruction) -> list[str]:
    """The words of an ENTRYPOINT that needs no shell. Raises ValueError for the other form."""
    words: list[str] = json.loads(instruction.value)
    return words
