"""Renews the digest of the base image in deploy/Dockerfile: `python -m deploy.image.base [TAG]`.

TAG is a newer tag of the same repository, such as 3.11.16-slim-trixie; without it the tag stays. `crane` asks the
registry for the digest of the index, which is that of all architectures.
"""

import re
import sys
from collections.abc import Sequence

from deploy.image.release import ROOT, ReleaseRefused, run

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
_BASE = re.compile(r"^(ARG BASE=)(?P<repository>[^\s@]+):(?P<tag>[\w.-]+)(@\S+)?$", re.MULTILINE)
_TAG = re.compile(r"\w[\w.-]{0,127}")


def renewed(dockerfile: str, tag: str) -> str:
    """The Dockerfile with the digest that the tag has now. Raises ReleaseRefused."""
    found = _BASE.search(dockerfile)
    if found is None:
        raise ReleaseRefused(f"{DOCKERFILE}: no line ARG BASE=REPOSITORY:TAG")
    if tag and not _TAG.fullmatch(tag):
        raise ReleaseRefused(f"TAG={tag}: not a tag, such as 3.11.16-slim-trixie")
    image = f"{found['repository']}:{tag or found['tag']}"
    digest = run("crane", "digest", image)
    return f"{dockerfile[: found.start()]}ARG BASE={image}@{digest}{dockerfile[found.end() :]}"


def main(arguments: Sequence[str]) -> None:
    try:
        text = renewed(DOCKERFILE.read_text("utf-8"), arguments[0] if arguments else "")
    except ReleaseRefused as error:
        sys.exit(f"make base: {error}")
    DOCKERFILE.write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
