"""Runs the commands that come to a node with a kernel of its own: `python -m tests.node.commands ADDRESS`.

Each connection brings one, a line with a list of words as JSON, and takes its `Outcome`, as JSON, too.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
from typing import NamedTuple

from tests.node.layout import COMMANDS_PORT

_LIMIT = 1 << 20  # of a command


class Outcome(NamedTuple):
    """Of a command: its exit status, and what it has printed."""

    status: int
    output: str
    errors: str


async def _run(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked, pipe = json.loads(await reader.readline()), subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(*asked, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        output, errors = await process.communicate()
        outcome = Outcome(process.returncode or 0, output.decode(errors="replace"), errors.decode(errors="replace"))
    except OSError as error:
        outcome = Outcome(127, "", str(error))
    with contextlib.suppress(OSError):
        writer.write(json.dumps(outcome).encode())
        await writer.drain()
    writer.close()


async def main(address: str) -> None:
    server = await asyncio.start_server(_run, address, COMMANDS_PORT, limit=_LIMIT)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
