"""One lock, and the part of it that a purpose needs."""

import pytest

from deploy.image import locked

HASH = "    --hash=sha256:" + 64 * "0"
LOCK = f"""\
colours==1.0 ; sys_platform == 'win32' \\
{HASH} \\
{HASH}
    # via
    #   screen
    #   tester
grid==2.0 ; python_full_version < '3.12' \\
{HASH}
    # via product (pyproject.toml)
grid==3.0 ; python_full_version >= '3.12' \\
{HASH}
    # via product (pyproject.toml)
screen==1.1 \\
{HASH}
    # via product (pyproject.toml)
tester==9.2 \\
{HASH}
    # via product (pyproject.toml)
tester-words==0.1 \\
{HASH}
    # via tester
"""


def test_a_package_brings_what_it_needs_and_nothing_else() -> None:
    chosen = locked.closure(["Screen[all]>=1"], locked.pins(LOCK))
    assert [pin.name for pin in chosen] == ["colours", "screen"]
    assert "\n".join(line for pin in chosen for line in pin.lines) == "\n".join(
        ["colours==1.0 ; sys_platform == 'win32' \\", f"{HASH} \\", HASH, "screen==1.1 \\", HASH]
    )


def test_every_version_of_a_package_stays_for_the_interpreters_it_is_for() -> None:
    assert [pin.lines[0][:9] for pin in locked.closure(["grid"], locked.pins(LOCK))] == ["grid==2.0", "grid==3.0"]


def test_a_package_that_is_not_locked_is_named() -> None:
    with pytest.raises(ValueError, match=r"requirements\.lock: unheard-of is not in it"):
        locked.closure(["grid", "Unheard_Of>=1"], locked.pins(LOCK))


@pytest.mark.parametrize("line", ["loose>=1 \\", "-r other.txt", "    --hash=md5:00", "free==1.0"])
def test_a_line_that_is_not_understood_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=rf"line {len(LOCK.splitlines()) + 1}: not understood"):
        locked.pins(f"{LOCK}{line}\n")
