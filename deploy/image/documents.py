"""What goes with a release: bills of materials (SPDX 2.3), the licences, the provenance (SLSA 1), and checksums."""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

UNKNOWN = "NOASSERTION"


@dataclass(frozen=True)
class Package:
    """An installed package. `licence` is an SPDX expression where the package states one, and else its own words."""

    name: str
    version: str
    licence: str
    is_expression: bool


def installed(site_packages: Path) -> list[Package]:
    """The packages of a folder, sorted by name."""
    return sorted(
        map(_package, importlib.metadata.distributions(path=[str(site_packages)])), key=lambda each: each.name
    )


def _package(found: importlib.metadata.Distribution) -> Package:
    name = re.sub(r"[-_.]+", "-", found.name).lower()
    metadata = found.metadata.json
    if expression := metadata.get("license_expression"):
        return Package(name, found.version, str(expression), is_expression=True)
    named = [text.rpartition(" :: ")[2] for text in metadata.get("classifier", ()) if text.startswith("License :: ")]
    stated = str(metadata.get("license", ""))
    words = stated if stated and "\n" not in stated else " or ".join(named)
    return Package(name, found.version, words or UNKNOWN, is_expression=False)


def spdx(subject: str, version: str, created: str, packages: Iterable[Package]) -> dict[str, Any]:
    """The bill of materials of what is installed; `created` is an RFC 3339 time."""
    entries = [
        {
            "SPDXID": f"SPDXRef-{each.name}",
            "name": each.name,
            "versionInfo": each.version,
            "downloadLocation": UNKNOWN,
            "filesAnalyzed": False,
            "licenseConcluded": UNKNOWN,
            "licenseDeclared": each.licence if each.is_expression else UNKNOWN,
            **({} if each.is_expression else {"licenseComments": each.licence}),
            "copyrightText": UNKNOWN,
            "externalRefs": [
                {
                    "referenceCategory": "PACKAGE-MANAGER",
                    "referenceType": "purl",
                    "referenceLocator": f"pkg:pypi/{each.name}@{each.version}",
                }
            ],
        }
        for each in packages
    ]
    content = hashlib.sha256(json.dumps(entries).encode()).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{subject}-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/{subject}-{version}-{content}",
        "creationInfo": {"created": created, "creators": ["Tool: headroom make release"]},
        "packages": entries,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": entry["SPDXID"],
            }
            for entry in entries
        ],
    }


def provenance(
    subjects: Mapping[str, str], parameters: Mapping[str, str], materials: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """The statement of how `subjects` (digests "sha256:..." by name) were made of `materials` (digests by URI)."""
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": _hexadecimal(digest)}} for name, digest in subjects.items()],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "https://headroom.io/make-release/v1",
                "externalParameters": dict(parameters),
                "resolvedDependencies": [{"uri": uri, "digest": dict(digest)} for uri, digest in materials.items()],
            },
            "runDetails": {"builder": {"id": "https://headroom.io/make-release"}},
        },
    }


def _hexadecimal(digest: str) -> str:
    return digest.removeprefix("sha256:")


def licences(packages: Iterable[Package]) -> str:
    """One line for each package."""
    return "".join(f"{each.name} {each.version}: {each.licence}\n" for each in packages)


def checksums(files: Iterable[Path]) -> str:
    """As `sha256sum --check` reads them."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def changes(changelog: str, version: str) -> str:
    """The section of a version, or else what is unreleased."""
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    by_title = {section.split(maxsplit=1)[0].strip("[]"): section for section in sections}
    chosen = by_title.get(version) or by_title["Unreleased"]
    return chosen.partition("\n")[2].strip() + "\n"
