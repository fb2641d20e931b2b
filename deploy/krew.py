"""The kubectl plugin for krew: an archive of the command with its packages, and the manifest that names archives.

usage: python -m deploy.krew archive PACKAGES FILE.tar.gz
       python -m deploy.krew manifest VERSION HOMEPAGE OS/ARCH=URL=FILE.tar.gz...

PACKAGES is what `pip install --target` made, by the Python that the plugin will need: wheels with compiled parts are of
one minor version, one system and one architecture. The first prints the archive's checksum, the second the manifest.
The rules are krew's (`internal/index/validation` and `cmd/validate-krew-manifest` of kubernetes-sigs/krew).
"""

import gzip
import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from shared.errors import HeadroomError, InvalidInput

ROOT = Path(__file__).parent.parent
NAME = "headroom"
EXECUTABLE = "kubectl-headroom"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PLATFORMS = ("linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64")
# Where krew links the executable from is not where its packages are.
LAUNCHER = f"""#!/usr/bin/env {PYTHON}
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "packages"))
from deploy.cli import main

main()
"""
_VERSION = re.compile(r"v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")
_SOURCE = "deploy.krew"


def archive(packages: Path, file: Path) -> str:
    """Writes the archive, the same for the same content, and returns its SHA-256. Raises InvalidInput."""
    if not (packages / "deploy" / "cli.py").is_file():
        problem = "holds no headroom; `pip install --target` it there"
        raise InvalidInput(source=_SOURCE, field="PACKAGES", value=str(packages), problem=problem)
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", mtime=0, fileobj=raw) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, EXECUTABLE, LAUNCHER.encode(), 0o755)
        _add(tar, "LICENSE", (ROOT / "LICENSE").read_bytes())
        for each in sorted(packages.rglob("*")):
            within = each.relative_to(packages)
            if each.is_file() and within.parts[0] != "bin" and "__pycache__" not in within.parts:
                _add(tar, f"packages/{within.as_posix()}", each.read_bytes())
    return hashlib.sha256(file.read_bytes()).hexdigest()


def manifest(version: str, homepage: str, archives: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
    """The plugin's manifest; `archives` are (system/architecture, URL, SHA-256). Raises InvalidInput."""
    if not _VERSION.fullmatch(version):
        raise InvalidInput(source=_SOURCE, field="VERSION", value=version, problem="must be like v1.2.3")
    _require_https("HOMEPAGE", homepage)
    platforms = [platform for platform, _, _ in archives]
    if not platforms or len(set(platforms)) < len(platforms) or not set(platforms) <= set(PLATFORMS):
        problem = f"must be some of {', '.join(PLATFORMS)}, each once"
        raise InvalidInput(source=_SOURCE, field="OS/ARCH", value=platforms, problem=problem)
    for _, url, _ in archives:
        _require_https("URL", url)
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": NAME},
        "spec": {
            "version": version,
            "homepage": homepage,
            "shortDescription": "Lend unused capacity, and explain what is bought",
            "description": (
                "Shows what each node uses, is predicted to use and lends to low-priority\n"
                "pods, explains each number term by term, plans which nodes would be\n"
                "bought or removed, and computes what a cluster could save. `savings`,\n"
                "`recommend` and `plan` need nothing installed in the cluster.\n"
            ),
            "caveats": f"This plugin runs on {PYTHON}, which has to be in the PATH.\n",
            "platforms": [
                {
                    "selector": {"matchLabels": dict(zip(("os", "arch"), platform.split("/"), strict=True))},
                    "uri": url,
                    "sha256": checksum,
                    "bin": EXECUTABLE,
                }
                for platform, url, checksum in archives
            ],
        },
    }


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))


def _require_https(field: str, url: str) -> None:
    if not re.fullmatch(r"https://[^\s/]+/\S*", url):
        raise InvalidInput(source=_SOURCE, field=field, value=url, problem="must be an https:// address")


def _archive_of(argument: str) -> tuple[str, str, str]:
    platform, _, rest = argument.partition("=")
    url, _, file = rest.rpartition("=")
    try:
        return platform, url, hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInput(source=_SOURCE, field="OS/ARCH=URL=FILE", value=argument, problem=str(error)) from error


class _Dumper(yaml.SafeDumper):
    """Lines stay lines."""

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case ["archive", packages, file]:
            print(archive(Path(packages), Path(file)))
        case ["manifest", version, homepage, *archives]:
            found = manifest(version, homepage, [_archive_of(each) for each in archives])
            print(yaml.dump(found, Dumper=_Dumper, sort_keys=False), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except HeadroomError as error:
        sys.exit(f"krew: {error}")
