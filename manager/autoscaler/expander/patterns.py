"""Patterns of users, as Cluster Autoscaler understands them: Go's regular expressions, which are RE2's.

RE2 takes time in proportion to the pattern and to the text, whatever they are, and no more memory than it is given.
"""

import re

import re2

MOST_BYTES = 256 << 10  # of one pattern, with what RE2 remembers of the texts it has seen
MOST_INSTRUCTIONS = 20_000  # of all patterns together, as RE2 compiles them; those of a plain name are its letters

_ONE_BYTE = r"\C"  # the one expression of RE2 that Go's regexp refuses
_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\.", re.DOTALL)


class Pattern:
    """What is searched for anywhere in a text."""

    def __init__(self, text: str) -> None:
        """Raises ValueError saying what is wrong with it."""
        if _ONE_BYTE in _TOKEN.findall(text):
            raise ValueError(f"invalid escape sequence: {_ONE_BYTE}")
        try:
            self._compiled = re2.compile(text, _options())
        except re2.error as error:
            raise ValueError(error.args[0].decode(errors="replace")) from error
        self.instructions: int = self._compiled.programsize

    def is_in(self, text: str) -> bool:
        return self._compiled.search(text.encode(errors="replace")) is not None


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = MOST_BYTES
    options.log_errors = False
    return options
