"""Limits of the files and connections that this process may have open."""

import resource

# A hard limit may be a billion, and code that closes all descriptors may loop over all of them.
MOST = 1 << 20


def raise_limit() -> int:
    """Raises the soft limit as far as possible without privilege, up to `MOST`, and returns it."""
    soft, hard = (MOST if limit == resource.RLIM_INFINITY else limit for limit in _limits())
    wanted = min(hard, MOST)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, _limits()[1]))
    except (OSError, ValueError):  # forbidden by a sandbox
        return soft
    return wanted


def share(wanted: int) -> int:
    """`wanted`, or less where the limit leaves less to one of several ports beside the other open files."""
    soft, _ = _limits()
    return wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft // 4))


def _limits() -> tuple[int, int]:
    return resource.getrlimit(resource.RLIMIT_NOFILE)
