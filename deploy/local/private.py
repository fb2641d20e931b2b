"""Files that only their owner can read or write from the moment they exist."""

import os
import tempfile
from pathlib import Path

DIRECTORY_MODE = 0o700
UMASK = 0o077
"""The umask of all processes of a local cluster: only the cluster's owner can access what they create."""


def write(path: Path, text: str) -> None:
    """Replaces `path` atomically: a reader sees either the old text or the complete new text. Raises OSError."""
    descriptor, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mkstemp's mode is 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(fresh, path)
    except BaseException:
        os.unlink(fresh)
        raise
