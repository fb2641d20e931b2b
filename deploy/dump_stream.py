"""Reads a list as kubectl prints it in JSON, item by item, so that a file of gigabytes is never in memory as a whole.

kubectl indents by four spaces, and a text in JSON has no raw line breaks. So a line of eight spaces and a brace ends an
item, and no other line does.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK_BYTES = 8 << 20
_HEAD = re.compile(rb'\s*\{\n    "apiVersion": "v1",\n    "items": \[\n+        (?=\{\n)')
_BETWEEN = b"\n        },\n        "
_ITEM_END = len(b"\n        }")
_END = re.compile(rb'\n        \}\n    \],\n    "kind": "(?:List|[A-Za-z]+List)",\n    "metadata": \{[^{}]*\}\n\}\s*\Z')
_MOST_HEAD = 256
_MOST_TAIL = 1024


def items(path: Path, came: Callable[[int], None] = lambda count: None) -> Iterator[bytes] | None:
    """The items as JSON; None for another layout. `came` receives the number of bytes read.

    Raises OSError.
    """
    with path.open("rb") as file:
        head = _HEAD.match(file.read(_MOST_HEAD))
        size = file.seek(0, 2)
        file.seek(max(0, size - _MOST_TAIL))
        end = _END.search(file.read())
        if head is None or end is None:
            return None
        last = max(0, size - _MOST_TAIL) + end.start()
    return _cut(path, head.end(), last + len(b"\n        }"), came)


def _cut(path: Path, start: int, end: int, came: Callable[[int], None]) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        rest = b""
        for block in _blocks(file, end - start):
            came(len(block))
            text, at = rest + block, 0
            while (between := text.find(_BETWEEN, at)) >= 0:
                yield text[at : between + _ITEM_END]
                at = between + len(_BETWEEN)
            rest = text[at:]
        if rest:
            yield rest


def _blocks(file: BinaryIO, count: int) -> Iterator[bytes]:
    while count > 0:
        block = file.read(min(BLOCK_BYTES, count))
        if not block:
            return
        count -= len(block)
        yield block
