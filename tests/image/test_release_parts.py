"""What a release refuses, and the documents that go with it."""

import io
import os
import tarfile
from pathlib import Path

import pytest

from deploy.image import documents, release
from deploy.image.documents import Package
from deploy.image.layout import LAYER, ImageLayout, tar_of

VALUES = """\
image:
  repository: ""
agent:
  enabled: true

  image:
    repository: ""
    digest: ""
manager:
  image:
    digest: ""
"""
DIGESTS = {"headroom-agent": "sha256:a", "headroom-manager": "sha256:m"}


@pytest.mark.parametrize(
    ("version", "registry", "why"),
    [
        ("9.9.9", "registry.example.com", "VERSION=9.9.9: pyproject.toml, the chart and the Dockerfile say "),
        ("0.1.0", "https://registry.example.com", "REGISTRY=https://registry.example.com: it is no host"),
        ("0.1.0", "", "REGISTRY=: it is no host"),
    ],
)
def test_a_version_or_registry_that_means_nothing_is_refused(version: str, registry: str, why: str) -> None:
    with pytest.raises(release.ReleaseRefused) as refused:
        release.read_options(["--version", version, "--registry", registry])
    assert why in str(refused.value)


def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(release.ReleaseRefused, match="unheard-of-program is needed"):
        release.run("unheard-of-program")


def test_the_charts_values_get_the_images_and_stay_otherwise() -> None:
    made = release.with_images(VALUES, "registry.example.com/a", DIGESTS)
    assert made == (
        VALUES.replace('repository: ""', 'repository: "registry.example.com/a/headroom"', 1)
        .replace('digest: ""', 'digest: "sha256:a"', 1)
        .replace('digest: ""', 'digest: "sha256:m"', 1)
    )
    with pytest.raises(release.ReleaseRefused, match="no empty digest below manager"):
        release.with_images(VALUES[: VALUES.index("manager")], "registry.example.com", DIGESTS)


def test_the_notes_are_the_section_of_the_version_or_what_is_unreleased() -> None:
    changelog = "# Changelog\n\n## Unreleased\n\nnew\n\n## [1.0.0] - 2026-01-01\n\nfirst\n"
    assert documents.changes(changelog, "1.0.0") == "first\n"
    assert documents.changes(changelog, "1.1.0") == "new\n"


def test_a_bill_has_an_expression_where_a_package_states_one_and_its_words_otherwise() -> None:
    packages = [Package("a", "1", "MIT", is_expression=True), Package("b", "2", "BSD License", is_expression=False)]
    bill = documents.spdx("image", "1.0", "2026-01-01T00:00:00Z", packages)
    stated = [(each["licenseDeclared"], each.get("licenseComments")) for each in bill["packages"]]
    assert stated == [("MIT", None), ("NOASSERTION", "BSD License")]
    assert bill["packages"][1]["externalRefs"][0]["referenceLocator"] == "pkg:pypi/b@2"
    assert documents.licences(packages) == "a 1: MIT\nb 2: BSD License\n"


def test_an_archive_depends_on_names_modes_and_contents_alone(tmp_path: Path) -> None:
    for name, time_seconds in (("one", 1), ("two", 2)):
        folder = tmp_path / name
        (folder / "b").mkdir(parents=True)
        (folder / "b" / "run").write_text("text")
        (folder / "b" / "run").chmod(0o700 if time_seconds == 1 else 0o755)
        (folder / "a").symlink_to("b/run")
        os.link(folder / "b" / "run", folder / "c")
        os.utime(folder / "b" / "run", (time_seconds, time_seconds))
    first, second = (tar_of(tmp_path / name, "opt/it", 9) for name in ("one", "two"))
    assert first == second
    with tarfile.open(fileobj=io.BytesIO(first)) as tar:
        members = {member.name: member for member in tar}
        read = {name: tar.extractfile(name) for name in ("opt/it/b/run", "opt/it/c")}
        assert {name: file.read() for name, file in read.items() if file} == dict.fromkeys(read, b"text")
    assert list(members) == ["opt/it", "opt/it/a", "opt/it/b", "opt/it/b/run", "opt/it/c"]
    assert {(member.uid, member.gid, member.mtime) for member in members.values()} == {(0, 0, 9)}
    assert members["opt/it/a"].linkname == "b/run"


def test_a_blob_with_another_content_than_its_digest_says_is_refused(tmp_path: Path) -> None:
    layout = ImageLayout(tmp_path)
    blob = layout.add(b"layer", LAYER)
    assert layout.read(blob.digest) == b"layer"
    (tmp_path / "blobs" / "sha256" / blob.digest.partition(":")[2]).write_bytes(b"other")
    with pytest.raises(ValueError, match=blob.digest):
        layout.read(blob.digest)


def test_a_base_with_a_compression_that_is_not_known_is_refused(tmp_path: Path) -> None:
    manifest = {"layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+zstd", "digest": "sha256:0"}]}
    with pytest.raises(ValueError, match="zstd"):
        next(ImageLayout(tmp_path).layer_tars(manifest))
