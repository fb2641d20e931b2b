"""Known vulnerabilities of what the lock pins."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from deploy.image import advisories, licences, locked, release
from deploy.image.advisories import Advisories, Advisory, Affected, AffectedPackage, Event, VersionRange
from tests.support.http_server import HttpServer, Request

LOCK = locked.LOCK.read_text()
MODIFIED = "2026-03-01T00:00:00Z"


def osv(name: str, *events: dict[str, str], kind: str = "ECOSYSTEM", **more: Any) -> dict[str, Any]:
    """An advisory as a database has it."""
    package = {"name": name, "ecosystem": "PyPI", "purl": f"pkg:pypi/{name}"}
    affected = {"package": package, "ranges": [{"type": kind, "events": events}], "versions": ["0.9"]}
    return {"id": f"PYSEC-{name}", "modified": MODIFIED, "details": "long", "affected": [affected], **more}


def archive(*documents: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as opened:
        opened.writestr("README.md", "no advisory")
        for number, document in enumerate(documents):
            opened.writestr(f"{number}.json", json.dumps(document))
    return content.getvalue()


class Database(HttpServer):
    """Serves an archive at every address but /missing."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        super().__init__()

    def answer(self, request: Request) -> tuple[int, bytes]:
        return (404, b"") if request.path == "/missing" else (200, self._content)


def known(*events: Event, accepted: dict[str, str] | None = None) -> Advisories:
    part = Affected(AffectedPackage("Grid.Tools", "PyPI"), (VersionRange("ECOSYSTEM", events),))
    return Advisories(MODIFIED, accepted or {}, (Advisory("PYSEC-1", MODIFIED, ("CVE-1",), (part,)),))


def test_the_lock_pins_nothing_with_a_known_vulnerability() -> None:
    assert list(advisories.findings(advisories.pinned(LOCK), advisories.committed())) == []


def test_the_committed_advisories_are_about_locked_packages_and_were_written_by_the_command() -> None:
    committed = advisories.committed()
    names = {name for name, _ in advisories.pinned(LOCK)}
    assert {part.package.name for each in committed.advisories for part in each.affected} & names
    assert advisories.lines(committed) == advisories.FILE.read_bytes()


@pytest.mark.parametrize(
    ("version", "events", "affected"),
    [
        ("1.0", (Event(introduced="0"), Event(fixed="1.1")), True),
        ("1.1", (Event(introduced="0"), Event(fixed="1.1")), False),
        ("1.1rc1", (Event(introduced="0"), Event(fixed="1.1")), True),
        ("1.10", (Event(introduced="0"), Event(fixed="1.9")), False),
        ("1.1", (Event(introduced="0"), Event(last_affected="1.1")), True),
        ("1.2", (Event(introduced="0"), Event(last_affected="1.1")), False),
        ("0.9", (Event(introduced="1.0"),), False),
        ("9.0", (Event(introduced="1.0"),), True),
        ("2.0", (Event(introduced="2.0"), Event(fixed="3.0"), Event(introduced="0"), Event(fixed="1.1")), True),
        ("1.5", (Event(introduced="2.0"), Event(fixed="3.0"), Event(introduced="0"), Event(fixed="1.1")), False),
    ],
)
def test_a_version_is_affected_by_the_ranges_of_the_advisory(
    version: str, events: tuple[Event, ...], affected: bool
) -> None:
    found = list(advisories.findings([("grid-tools", version), ("grid", version)], known(*events)))
    assert bool(found) == affected


def test_a_finding_names_the_package_the_advisory_and_the_version_that_fixes_it_unless_it_is_accepted() -> None:
    events = (Event(introduced="0"), Event(fixed="1.1"))
    lock = [("grid-tools", "1.0")]
    assert list(advisories.findings(lock, known(*events))) == ["grid-tools 1.0: PYSEC-1, CVE-1; fixed in 1.1"]
    assert list(advisories.findings(lock, known(*events, accepted={"CVE-1": "never called"}))) == []


def test_a_renewal_keeps_what_is_about_locked_packages_and_of_it_the_affected_versions() -> None:
    source = archive(
        osv("grid", {"introduced": "0"}, {"fixed": "2"}, aliases=["CVE-2"]),
        osv("list", {"introduced": "0"}, kind="GIT"),
        osv("other", {"introduced": "0"}),
        osv("gone", {"introduced": "0"}, withdrawn=MODIFIED),
        osv("other", {"introduced": "0"}, modified="2026-04-01T00:00:00Z"),
    )
    made = advisories.renewed(source, {"grid", "list", "gone"}, {"CVE-2": "why", "CVE-3": "fixed since"})
    assert made.as_of == "2026-04-01T00:00:00Z"
    assert made.accepted == {"CVE-2": "why"}
    grid, listed = made.advisories
    assert (grid.id, grid.aliases) == ("PYSEC-grid", ("CVE-2",))
    assert [(part.ranges, part.versions) for part in grid.affected] == [
        ((VersionRange("ECOSYSTEM", (Event(introduced="0"), Event(fixed="2"))),), ())
    ]
    assert [(part.ranges, part.versions) for part in listed.affected] == [((), ("0.9",))]
    assert list(advisories.findings([("list", "0.9.0")], made)) == ["list 0.9.0: PYSEC-list; no fixed version is known"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no archive", "not a zip archive"),
        (archive(), "no OSV file"),
        (archive({"id": 1}), "not an archive of OSV files"),
        (archive(osv("grid", {"introduced": "first"})), "PYSEC-grid, grid: Invalid version: 'first'"),
    ],
)
def test_an_archive_that_is_none_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(advisories.Unusable, match=why):
        advisories.renewed(content, {"grid"}, {})


def test_a_source_is_read_from_its_address_or_path_and_named_if_it_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "all.zip"
    file.write_bytes(b"content")
    database = Database(b"content")
    try:
        assert advisories.read(f"{database.url}/all.zip") == advisories.read(str(file)) == b"content"
        for missing in (f"{database.url}/missing", str(tmp_path / "unheard-of")):
            with pytest.raises(advisories.Unusable, match=missing):
                advisories.read(missing)
    finally:
        database.close()


def test_a_planted_advisory_stops_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = advisories.renewed(archive(osv("urllib3", {"introduced": "0"})), {"urllib3"}, {})
    file = tmp_path / "advisories.json"
    file.write_bytes(advisories.lines(planted))
    release.check_advisories()
    monkeypatch.setattr(advisories, "FILE", file)
    with pytest.raises(release.ReleaseRefused, match=r"urllib3 \S+: PYSEC-urllib3; no fixed version is known"):
        release.check_advisories()


def test_the_page_of_licences_is_that_of_the_installed_packages() -> None:
    made = licences.page(Path(pytest.__file__).parents[1])
    assert made == licences.FILE.read_text("utf-8"), "make licences"
    assert "NOASSERTION" not in made
