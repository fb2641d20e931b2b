"""Compares requirements.lock with known vulnerabilities.

usage: python -m deploy.image.advisories check
       python -m deploy.image.advisories renew [SOURCE]

deploy/image/advisories.json has the advisories about packages of the lock: of OSV's format
(https://ossf.github.io/osv-schema/) the fields that say which versions are affected. `renew` takes them from OSV's
archive for PyPI, or from SOURCE, the address or path of another zip archive of OSV files. An advisory that cannot be
heeded yet is accepted by its id below `accepted`, with the reason.
"""

import io
import sys
import urllib.request
import zipfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from deploy.image import locked

FILE = Path(__file__).with_name("advisories.json")
SOURCE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"
ECOSYSTEM = "PyPI"
MOST_BYTES = 1 << 30  # of an archive, and of all that it unpacks to
TIMEOUT_SECONDS = 60.0


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """A version where a range begins, or ends: `fixed` is the first that is not affected."""

    introduced: str = ""
    fixed: str = ""
    last_affected: str = ""


class VersionRange(msgspec.Struct, frozen=True):
    type: str
    events: tuple[Event, ...]


class AffectedPackage(msgspec.Struct, frozen=True):
    name: str
    ecosystem: str


class Affected(msgspec.Struct, frozen=True, omit_defaults=True):
    """Versions of a package: those that are listed, and those in a range."""

    package: AffectedPackage
    ranges: tuple[VersionRange, ...] = ()
    versions: tuple[str, ...] = ()


class Advisory(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    modified: str
    aliases: tuple[str, ...] = ()
    affected: tuple[Affected, ...] = ()
    withdrawn: str = ""


class Advisories(msgspec.Struct, frozen=True):
    """`as_of` is when the newest advisory of the source was modified, in RFC 3339."""

    as_of: str
    accepted: dict[str, str]
    advisories: tuple[Advisory, ...]


class Unusable(Exception):
    """The source, or the committed file, is not what it should be; the message says why."""


def committed() -> Advisories:
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=Advisories)
    except msgspec.MsgspecError as error:
        raise Unusable(f"{FILE}: {error}") from error


def pinned(lock: str) -> list[tuple[str, str]]:
    """Names and versions of a lock. A package may have a version for each range of Pythons."""
    words = [pin.lines[0].split()[0].partition("==") for pin in locked.pins(lock)]
    return [(name, version) for name, _, version in words]


def findings(lock: Iterable[tuple[str, str]], known: Advisories) -> Iterator[str]:
    """A line for each pinned version that an advisory affects, unless the advisory is accepted."""
    for name, version in lock:
        for advisory in known.advisories:
            names = (advisory.id, *advisory.aliases)
            about = [part for part in advisory.affected if canonicalize_name(part.package.name) == name]
            if any(is_affected(version, part) for part in about) and not known.accepted.keys() & set(names):
                fixed = sorted({event.fixed for part in about for each in part.ranges for event in each.events} - {""})
                hint = f"fixed in {', '.join(fixed)}" if fixed else "no fixed version is known"
                yield f"{name} {version}: {', '.join(names)}; {hint}"


def is_affected(version: str, part: Affected) -> bool:
    """By OSV's algorithm. A version that is listed in another spelling counts, too."""
    at = Version(version)
    return any(_is_version(each, at) for each in part.versions) or any(_holds(each, at) for each in part.ranges)


def _is_version(text: str, version: Version) -> bool:
    """Some advisories list versions that PyPI would not take."""
    try:
        return Version(text) == version
    except InvalidVersion:
        return False


def _holds(range_: VersionRange, version: Version) -> bool:
    if range_.type != "ECOSYSTEM":
        return False
    inside = False
    for event in sorted(range_.events, key=_position):
        if event.introduced:
            inside = inside or event.introduced == "0" or version >= Version(event.introduced)
        else:
            inside = inside and (version < Version(event.fixed) if event.fixed else version <= _position(event)[0])
    return inside


def _position(event: Event) -> tuple[Version, bool]:
    """A version that ends one range and begins another is affected."""
    return Version(event.introduced or event.fixed or event.last_affected), bool(event.introduced)


def renewed(archive: bytes, names: Collection[str], accepted: dict[str, str]) -> Advisories:
    """The advisories of an archive about packages of these names; what was accepted and is gone is forgotten.

    Raises Unusable.
    """
    as_of, found = "", []
    try:
        for text in _documents(archive):
            advisory = msgspec.json.decode(text, type=Advisory)
            as_of = max(as_of, advisory.modified)
            if not advisory.withdrawn and (parts := tuple(_about(advisory, names))):
                found.append(msgspec.structs.replace(advisory, affected=parts))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Unusable(f"not an archive of OSV files: {error}") from error
    if not as_of:
        raise Unusable("the archive has no OSV file")
    known = {name for advisory in found for name in (advisory.id, *advisory.aliases)}
    kept = {name: reason for name, reason in accepted.items() if name in known}
    return Advisories(as_of, kept, tuple(sorted(found, key=lambda each: each.id)))


def _documents(archive: bytes) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            if (size := sum(member.file_size for member in opened.infolist())) > MOST_BYTES:
                raise Unusable(f"the archive unpacks to {size} bytes, which is more than {MOST_BYTES}")
            for member in opened.infolist():
                if member.filename.endswith(".json"):
                    yield opened.read(member)
    except zipfile.BadZipFile as error:
        raise Unusable(f"not a zip archive: {error}") from error


def _about(advisory: Advisory, names: Collection[str]) -> Iterator[Affected]:
    """What it says of these packages, by ranges where it has any. Raises Unusable for a version that is none."""
    for part in advisory.affected:
        if part.package.ecosystem == ECOSYSTEM and canonicalize_name(part.package.name) in names:
            ranges = tuple(each for each in part.ranges if each.type == "ECOSYSTEM")
            try:
                _ = [_position(event) for each in ranges for event in each.events]
            except InvalidVersion as error:
                raise Unusable(f"{advisory.id}, {part.package.name}: {error}") from error
            yield Affected(part.package, ranges, () if ranges else part.versions)


def lines(known: Advisories) -> bytes:
    """The file, with one advisory a line."""
    head = msgspec.json.encode(msgspec.structs.replace(known, advisories=())).removesuffix(b"[]}")
    return head + b"[\n" + b",\n".join(map(msgspec.json.encode, known.advisories)) + b"\n]}\n"


def read(source: str) -> bytes:
    """The content of an address or path. Raises Unusable."""
    try:
        if not source.startswith(("http://", "https://")):
            return Path(source).read_bytes()
        with urllib.request.urlopen(source, timeout=TIMEOUT_SECONDS) as answer:
            content: bytes = answer.read(MOST_BYTES + 1)
    except OSError as error:
        raise Unusable(f"{source}: {error}") from error
    if len(content) > MOST_BYTES:
        raise Unusable(f"{source}: more than {MOST_BYTES} bytes")
    return content


def main(arguments: Sequence[str]) -> None:
    lock = pinned(locked.LOCK.read_text())
    try:
        match arguments:
            case ["check"]:
                known = committed()
            case ["renew", *source] if len(source) < 2:
                known = renewed(read(*source or [SOURCE]), {name for name, _ in lock}, committed().accepted)
                FILE.write_bytes(lines(known))
            case _:
                sys.exit(__doc__)
    except Unusable as error:
        sys.exit(f"advisories: {error}")
    found = list(findings(lock, known))
    print(*found, f"{len(known.advisories)} advisories of {known.as_of} about {len(lock)} pinned versions", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
