"""Writes docs/licences.md, the licences of what the images add to their base: `python -m deploy.image.licences`.

It reads the packages that are installed where it runs, which are those of requirements.lock.
"""

import sysconfig
from pathlib import Path

from deploy.image import documents, locked

FILE = locked.ROOT / "docs" / "licences.md"

_HEAD = """\
# Licences

The images contain these packages beside Headroom itself, which is under Apache-2.0, and beside the base image: Debian's
packages and CPython (PSF-2.0). A licence is an SPDX expression if the package states one, and else the package's own
words. `make licences` writes this page from the installed packages.

| package | licence | image |
|---|---|---|
"""


def page(site_packages: Path) -> str:
    """The page, by what is installed in a folder. What the lock has for other systems only is left out."""
    licences = {each.name: each.licence for each in documents.installed(site_packages)}
    images: dict[str, list[str]] = {}
    lock = locked.pins(locked.LOCK.read_text())
    for component in locked.COMPONENTS:
        for name in sorted(
            {pin.name for pin in locked.closure(locked.requirements(component), lock)} & licences.keys()
        ):
            images.setdefault(name, []).append(component)
    rows = [f"| {name} | {licences[name]} | {', '.join(images[name])} |\n" for name in sorted(images)]
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    FILE.write_text(page(Path(sysconfig.get_paths()["purelib"])), "utf-8")
