"""Regular expressions as Cluster Autoscaler's (RE2) and ours (Python's `re`) both understand them.

RE2 takes linear time. `re` tries every way to split a text over the repetitions of a pattern, so that what would take
it for ever is refused, as is what means something else to it, or what RE2 refuses.
"""

import re

MOST_REPEATS = 4  # of any length: each multiplies the time by the length of the text

_POSIX_CLASS = re.compile(r"\[:\^?[a-z]+:\]")
_NOT_RE2 = ("(?=", "(?!", "(?<=", "(?<!", "(?P=", "(?(", "(?>")
_COUNT = re.compile(r"\{([0-9]*)(,?)([0-9]*)\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_SMALL_COUNT = 9


def compiled(text: str) -> re.Pattern[str]:
    """Raises ValueError saying what is wrong with it."""
    posix = _POSIX_CLASS.search(text)
    if posix is not None:
        raise ValueError(f"{posix[0]} is not known here: write the characters out, such as 0-9 or a-z")
    try:
        found = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from error
    _check(text)
    return found


def _check(text: str) -> None:
    """Raises ValueError."""
    varied = [False]  # by open group: whether it can match in several ways
    is_varied_group = False  # what is just before
    repeats = at = 0
    while at < len(text):
        known = _token(text, at)
        at += len(known)
        if known[0] == "\\" and known[1:].isdigit() and known != "\\0":
            raise ValueError(f"{known} refers back to a group, which Cluster Autoscaler refuses, too")
        if known in _NOT_RE2:
            raise ValueError(f"{known} is no expression of Cluster Autoscaler's")
        if known == "(":
            varied.append(False)
        elif known == "|":
            varied[-1] = True
        elif known[0] in "*+?{" and known != "{":
            if is_varied_group and known[0] != "?":
                raise ValueError(f"{known} repeats what itself repeats or branches, which can take for ever")
            varied[-1] = True
            repeats += _is_long(known)
        is_varied_group = known == ")" and varied.pop()
        if is_varied_group:
            varied[-1] = True
    if repeats > MOST_REPEATS:
        raise ValueError(f"{repeats} repetitions, which can take for ever: at most {MOST_REPEATS}")


def _token(text: str, at: int) -> str:
    """What the expression goes on with: an escape, a class, a quantifier with its mode, or one character."""
    if text[at] == "\\":
        return text[at : at + 2]
    for pattern in (_CLASS, _COUNT):
        found = pattern.match(text, at)
        if found is not None:
            end = found.end()
            return text[at : end + (pattern is _COUNT and text[end : end + 1] in ("?", "+"))]
    if text[at] in "*+?":
        return text[at : at + 1 + (text[at + 1 : at + 2] in ("?", "+"))]
    return next((each for each in _NOT_RE2 if text.startswith(each, at)), text[at])


def _is_long(quantifier: str) -> bool:
    count = _COUNT.match(quantifier)
    if count is None:
        return quantifier[0] in "*+"
    least, comma, most = count.groups()
    return int((most if comma else least) or _SMALL_COUNT + 1) > _SMALL_COUNT
