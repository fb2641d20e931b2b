"""User-supplied patterns as Cluster Autoscaler reads them: Go's regular expressions, which are RE2's.

RE2 takes time proportional to the pattern and to the text, whatever they are, and no more memory than its limit.
"""

import re

import re2

MOST_BYTES = 256 << 10  # of one pattern, with RE2's cache of texts
MOST_INSTRUCTIONS = 20_000  # of all patterns together, as RE2 compiles them; a plain name has one per letter

_ONE_BYTE = r"\C"  # the only RE2 expression that Go's regexp refuses
_TOKEN = re.compile(r"\\Q.*?(?:\\E|$)|\\.", re.DOTALL)


class Pattern:
    """A pattern that matches anywhere in a text."""

    def __init__(self, text: str) -> None:
        """Raises ValueError that says what is wrong with the pattern."""
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
