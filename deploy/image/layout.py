"""OCI image layouts: folders of blobs that registries' tools push as they are.

What is written depends only on what it is made from: files are sorted, belong to root, and have one time.
"""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

_GZIPPED = (LAYER, "application/vnd.docker.image.rootfs.diff.tar.gzip")


@dataclass(frozen=True)
class Blob:
    """A blob of a layout, as others refer to it; `more` has what only some references state, as `platform`."""

    media_type: str
    digest: str
    size_bytes: int
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reference(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size_bytes, **self.more}


class ImageLayout:
    """An image layout in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._blobs = folder / "blobs" / "sha256"

    def add(self, content: bytes, media_type: str) -> Blob:
        digest = hashlib.sha256(content).hexdigest()
        self._blobs.mkdir(parents=True, exist_ok=True)
        (self._blobs / digest).write_bytes(content)
        return Blob(media_type, f"sha256:{digest}", len(content))

    def add_document(self, document: Mapping[str, Any], media_type: str) -> Blob:
        return self.add(json.dumps(document, sort_keys=True, separators=(",", ":")).encode(), media_type)

    def add_manifest(self, config: Blob, layers: list[Blob], **more: Any) -> Blob:
        references = {"config": config.reference, "layers": [layer.reference for layer in layers]}
        return self.add_document({"schemaVersion": 2, "mediaType": MANIFEST, **references, **more}, MANIFEST)

    def read(self, digest: str) -> bytes:
        """Raises ValueError if the content is not what the digest says."""
        content = (self._blobs / digest.removeprefix("sha256:")).read_bytes()
        if hashlib.sha256(content).hexdigest() != digest.removeprefix("sha256:"):
            raise ValueError(f"{self.folder}: the content of {digest} is another")
        return content

    def document(self, digest: str) -> dict[str, Any]:
        return dict(json.loads(self.read(digest)))

    def close(self, top: Blob) -> None:
        """Names what the layout is about; nothing else is in its index."""
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [top.reference]}
        (self.folder / "index.json").write_text(json.dumps(index))

    def top(self) -> dict[str, Any]:
        """The reference to what the layout is about."""
        (reference,) = json.loads((self.folder / "index.json").read_text())["manifests"]
        return dict(reference)

    def layer_tars(self, manifest: Mapping[str, Any]) -> Iterator[tarfile.TarFile]:
        """The layers of an image, from the base upwards. Raises ValueError for a compression that is not known here."""
        for reference in manifest["layers"]:
            if reference["mediaType"] not in _GZIPPED:
                raise ValueError(f"{self.folder}: a layer is {reference['mediaType']}, and not {LAYER}")
            with tarfile.open(fileobj=io.BytesIO(self.read(reference["digest"])), mode="r:gz") as tar:
                yield tar


def tar_of(folder: Path, path: str, time_seconds: int) -> bytes:
    """A tar archive with all that `folder` holds, below `path`."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for file in (folder, *sorted(folder.rglob("*"))):
            member = tar.gettarinfo(file, str(Path(path) / file.relative_to(folder)))
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mtime = time_seconds
            if not member.issym():
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            # Two names of one file are two files in an archive that may be unpacked anywhere.
            member.type = tarfile.REGTYPE if member.islnk() else member.type
            member.size = file.stat().st_size if member.isreg() else 0
            if member.isreg():
                with file.open("rb") as opened:
                    tar.addfile(member, opened)
            else:
                tar.addfile(member)
    return content.getvalue()


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=6, mtime=0)


def diff_id(tar: bytes) -> str:
    """By which an image's configuration names a layer."""
    return f"sha256:{hashlib.sha256(tar).hexdigest()}"
