"""Files that only their owner can read or write from the instant they exist."""

import os
import tempfile
from pathlib import Path

MODE = 0o600
DIRECTORY_MODE = 0o700
UMASK = 0o077
"""Of every process of a local cluster: what one of them creates is for the cluster's owner alone."""


def write(path: Path, text: str) -> None:
    """Replaces `path` whole: a reader sees the old text or all of the new. Raises OSError."""
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp's mode is 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
