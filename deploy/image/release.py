"""Builds a release and pushes it: `make release VERSION=0.1.0 REGISTRY=registry.example.com/platform`.

Below dist/release/VERSION it leaves the images and the chart as OCI layouts, the command line as a wheel and as one
file, bills of materials, licences, provenance and checksums. `crane` reads the base from its registry and pushes; with
--key, `cosign` signs. Two runs on one commit make the same digests.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deploy.image import advisories, documents, locked
from deploy.image.layout import CONFIG, INDEX, LAYER, Blob, ImageLayout, diff_id, gzipped, tar_of
from shared import yaml_file

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CHART = ROOT / "deploy" / "helm" / "headroom"
PORTS = {"agent": 9316, "manager": 8080}
PREFIX = "opt/headroom"
INTERPRETER = "/usr/local/bin/python3"
USER = "65532:65532"
CHART_CONFIG = "application/vnd.cncf.helm.config.v1+json"
CHART_CONTENT = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"

_STANDARD_LIBRARY = re.compile(r"usr/local/lib/python3\.\d+/(?!site-packages/).+\.py")


class ReleaseRefused(Exception):
    """The release cannot be made; the message says why."""


@dataclass(frozen=True)
class ReleaseOptions:
    """What is released, from where, and to where."""

    version: str
    registry: str
    base: str
    architectures: tuple[str, ...]
    key: str
    insecure: bool


@dataclass(frozen=True)
class ReleasedCommit:
    """The commit that is released."""

    revision: str
    time_seconds: int

    @property
    def time(self) -> str:
        """In RFC 3339."""
        return datetime.fromtimestamp(self.time_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Release:
    """What has been made until now, in `folder`. Digests are by name, those of the base by reference."""

    options: ReleaseOptions
    source: ReleasedCommit
    folder: Path
    digests: dict[str, str] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    bytecode: bytes = b""

    def file(self, name: str) -> Path:
        return self.folder / name


def read_options(arguments: Sequence[str]) -> ReleaseOptions:
    """Raises ReleaseRefused for a version that is not the package's."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--registry", required=True, help="where to push, without a scheme")
    parser.add_argument("--base", default=_base(), help="image to build upon; a digest pins it")
    parser.add_argument("--architectures", default="amd64,arm64")
    parser.add_argument("--key", default="", help="cosign's private key; without it nothing is signed")
    parser.add_argument("--insecure", action="store_true", help="speak HTTP to the registry")
    given = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    if given.version != project:
        raise ReleaseRefused(f"VERSION={given.version}: pyproject.toml, the chart and the Dockerfile say {project}")
    if not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*", given.registry):
        raise ReleaseRefused(
            f"REGISTRY={given.registry}: it is no host with an optional port and path, as in a.example.com/b"
        )
    architectures = tuple(given.architectures.split(","))
    return ReleaseOptions(given.version, given.registry, given.base, architectures, given.key, given.insecure)


def _base() -> str:
    found = re.search(r"^ARG BASE=(\S+)$", (ROOT / "deploy" / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    return found[1]


def run(*words: str | Path, environment: Mapping[str, str] | None = None) -> str:
    """What a command prints. Raises ReleaseRefused with its errors if it fails or is not there."""
    command = [str(word) for word in words]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise ReleaseRefused(f"{command[0]} is needed, and cannot be run: {error}") from error
    if done.returncode:
        raise ReleaseRefused(f"{' '.join(command[:3])}: exit status {done.returncode}\n{done.stderr or done.stdout}")
    return done.stdout.strip()


def read_source() -> ReleasedCommit:
    """Raises ReleaseRefused for a checkout with changes that are not committed."""
    if changed := run("git", "status", "--porcelain"):
        raise ReleaseRefused(f"there are changes that are not committed:\n{changed}")
    revision, seconds = run("git", "log", "-1", "--format=%H %ct").split()
    return ReleasedCommit(revision, int(seconds))


def check_advisories() -> None:
    """Raises ReleaseRefused for a pinned version with a known vulnerability that is not accepted."""
    if found := list(advisories.findings(advisories.pinned(locked.LOCK.read_text()), advisories.committed())):
        raise ReleaseRefused("\n".join(["requirements.lock has known vulnerabilities:", *found]))


def build_images(release: Release, work: Path) -> None:
    """An index for each component, with an image for each architecture."""
    bases = {architecture: pulled_base(release, architecture, work) for architecture in release.options.architectures}
    release.bytecode = library_bytecode(release.source, bases, work)
    for component in locked.COMPONENTS:
        layout = ImageLayout(release.file(f"headroom-{component}"))
        manifests = [
            image(release, component, architecture, base, layout, work) for architecture, base in bases.items()
        ]
        document = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [each.reference for each in manifests]}
        top = layout.add_document(document | {"annotations": labels(release)}, INDEX)
        layout.close(top)
        release.digests[f"headroom-{component}"] = top.digest


def pulled_base(release: Release, architecture: str, work: Path) -> ImageLayout:
    """The base of an architecture. Raises ReleaseRefused for another Python than this."""
    folder = work / f"base-{architecture}"
    options = ["--insecure"] if release.options.insecure else []
    platform = f"linux/{architecture}"
    run("crane", "pull", *options, "--format=oci", f"--platform={platform}", release.options.base, folder)
    base = ImageLayout(folder)
    release.bases[f"{release.options.base}?platform={platform}"] = base.top()["digest"]
    environment = dict(entry.split("=", 1) for entry in _configuration(base)["config"]["Env"])
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    theirs = environment.get("PYTHON_VERSION", "none")
    if theirs.rpartition(".")[0] != ours:
        raise ReleaseRefused(
            f"{release.options.base}: its Python is {theirs}, and this is {ours}, whose bytecode it cannot run"
        )
    return base


def _manifest(base: ImageLayout) -> dict[str, Any]:
    return base.document(base.top()["digest"])


def _configuration(base: ImageLayout) -> dict[str, Any]:
    return base.document(_manifest(base)["config"]["digest"])


def library_bytecode(source: ReleasedCommit, bases: Mapping[str, ImageLayout], work: Path) -> bytes:
    """A layer with the bytecode of the standard library, which the base comes without. It is that of any machine."""
    folder = work / "library"
    base = next(iter(bases.values()))
    for tar in base.layer_tars(_manifest(base)):
        for member in tar:
            if member.isreg() and _STANDARD_LIBRARY.fullmatch(member.name.removeprefix("./")):
                tar.extract(member, folder, filter="data")
    (library,) = (folder / "usr" / "local" / "lib").glob("python3.*")
    run(HERE / "precompile.sh", "-s", folder, "-p", "/", library)
    for file in [*library.rglob("*.py")]:
        file.unlink()
    return tar_of(folder / "usr", "usr", source.time_seconds)


def image(
    release: Release, component: str, architecture: str, base: ImageLayout, layout: ImageLayout, work: Path
) -> Blob:
    """Adds an image to the layout: the base, the bytecode of its library, and the component."""
    folder = work / f"{component}-{architecture}"
    environment = os.environ | {"PREFIX": f"/{PREFIX}", "INTERPRETER": INTERPRETER}
    run(HERE / "build.sh", component, folder, architecture, environment=environment)
    write_bill(release, f"headroom-{component}-{release.options.version}-{architecture}", folder)
    tars = [release.bytecode, tar_of(folder, PREFIX, release.source.time_seconds)]
    manifest, configuration = _manifest(base), _configuration(base)
    layers = [layout.add(base.read(reference["digest"]), LAYER) for reference in manifest["layers"]]
    layers += [layout.add(gzipped(tar), LAYER) for tar in tars]
    configuration["rootfs"]["diff_ids"] += [diff_id(tar) for tar in tars]
    configuration["created"] = release.source.time
    configuration["config"] = configured(release, component, configuration["config"])
    history = [f"the bytecode of the standard library, and deploy/image/build.sh {component}"] * len(tars)
    configuration.setdefault("history", []).extend(
        {"created": release.source.time, "created_by": text} for text in history
    )
    config = layout.add_document(configuration, CONFIG)
    made = layout.add_manifest(config, layers, annotations=labels(release))
    platform = {key: configuration[key] for key in ("architecture", "os", "variant") if key in configuration}
    return Blob(made.media_type, made.digest, made.size_bytes, {"platform": platform})


def configured(release: Release, component: str, base: Mapping[str, Any]) -> dict[str, Any]:
    """How an image is run: what deploy/Dockerfile says, over what its base says."""
    environment = dict(entry.split("=", 1) for entry in base["Env"])
    environment |= {"PATH": f"/{PREFIX}/bin:{environment['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    return {
        **base,
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Labels": labels(release),
        "User": USER,
        "StopSignal": "SIGTERM",
        "ExposedPorts": {f"{PORTS[component]}/tcp": {}},
        "Entrypoint": ["python", "-m", component],
        "Cmd": None,
    }


def labels(release: Release) -> dict[str, str]:
    described = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    values = {
        "title": "headroom",
        "description": described,
        "version": release.options.version,
        "revision": release.source.revision,
        "base.name": release.options.base,
    }
    return {f"org.opencontainers.image.{key}": value for key, value in values.items()}


def write_bill(release: Release, name: str, folder: Path) -> None:
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    packages = documents.installed(site_packages)
    bill = documents.spdx(name, release.options.version, release.source.time, packages)
    release.file(f"{name}.spdx.json").write_text(json.dumps(bill, indent=1))
    release.file(f"{name}.licences.txt").write_text(documents.licences(packages))


def build_chart(release: Release, work: Path) -> None:
    """The chart as it is pulled, with the release's images by digest, and as an OCI artefact."""
    folder = work / "headroom"
    shutil.copytree(CHART, folder, ignore=shutil.ignore_patterns("ci"))
    values = folder / "values.yaml"
    values.write_text(with_images(values.read_text("utf-8"), release.options.registry, release.digests), "utf-8")
    content = gzipped(tar_of(folder, "headroom", release.source.time_seconds))
    release.file(f"headroom-{release.options.version}.tgz").write_bytes(content)
    layout = ImageLayout(release.file("chart"))
    config = layout.add_document(yaml_file.parse((folder / "Chart.yaml").read_text("utf-8")), CHART_CONFIG)
    manifest = layout.add_manifest(config, [layout.add(content, CHART_CONTENT)])
    layout.close(manifest)
    release.digests["charts/headroom"] = manifest.digest


def with_images(values: str, registry: str, digests: Mapping[str, str]) -> str:
    """The chart's values with where the images are. Raises ReleaseRefused if the values have no such places."""
    places = [("image", "repository", f"{registry}/headroom")]
    places += [(component, "digest", digests[f"headroom-{component}"]) for component in locked.COMPONENTS]
    for section, key, value in places:
        place = re.search(rf'^{section}:\n(?:(?!\S).*\n)*? +{key}: (?="")', values, re.MULTILINE)
        if place is None:
            raise ReleaseRefused(f"the chart's values have no empty {key} below {section}")
        values = values[: place.end()] + json.dumps(value) + values[place.end() + len('""') :]
    return values


def build_command(release: Release, work: Path) -> None:
    """The command line as a wheel, and as one file for this machine's architecture and Python."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(release.source.time_seconds)}
    run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", release.folder)
    folder = work / "command"
    run(HERE / "build.sh", "command", folder, environment=environment | {"PREFIX": f"/{PREFIX}"})
    write_bill(release, f"headroom-command-{release.options.version}", folder)
    (site_packages,) = folder.glob("lib/python3.*/site-packages")
    python = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    file = release.file(f"headroom-{release.options.version}-{python}-linux-{os.uname().machine}.pyz")
    shiv = [sys.executable, "-m", "shiv", "--reproducible", "--compressed", "--python", f"/usr/bin/env {python}"]
    shiv += ["--site-packages", str(site_packages), "--entry-point", "deploy.entry:main", "--output-file", str(file)]
    run(*shiv, environment=environment)


def write_papers(release: Release) -> None:
    """Notes, provenance and checksums of the files and digests."""
    options = release.options
    release.file("notes.md").write_text(documents.changes((ROOT / "CHANGELOG.md").read_text("utf-8"), options.version))
    subjects = {f"{options.registry}/{name}": digest for name, digest in release.digests.items()}
    materials: dict[str, Mapping[str, str]] = {"git": {"gitCommit": release.source.revision}}
    materials |= {base: {"sha256": digest.removeprefix("sha256:")} for base, digest in release.bases.items()}
    parameters = {"version": options.version, "registry": options.registry, "base": options.base}
    statement = documents.provenance(subjects, parameters, materials)
    release.file("provenance.json").write_text(json.dumps(statement, indent=1))
    release.file("digests.json").write_text(json.dumps(release.digests, indent=1))
    release.file("checksums.txt").write_text(
        documents.checksums(sorted(file for file in release.folder.iterdir() if file.is_file()))
    )


def push(release: Release) -> None:
    """Pushes images and chart under the version, and signs their digests if there is a key."""
    options = release.options
    insecure = ["--insecure"] if options.insecure else []
    for name, digest in release.digests.items():
        where = f"{options.registry}/{name}"
        folder = release.file(name if name != "charts/headroom" else "chart")
        run("crane", "push", *insecure, folder, f"{where}:{options.version}")
        if (pushed := run("crane", "digest", *insecure, f"{where}:{options.version}")) != digest:
            raise ReleaseRefused(f"{where}:{options.version}: the registry has {pushed}, and not {digest}")
        print(f"{where}@{digest}", flush=True)
        if options.key:
            sign(release, f"{where}@{digest}", name)


def sign(release: Release, reference: str, name: str) -> None:
    """Signs what is at a digest, and attests its bills of materials and provenance. Nothing goes to a public log."""
    options = release.options
    how = ["--key", options.key, "--tlog-upload=false", "--yes"]
    how += ["--allow-http-registry"] if options.insecure else []
    run("cosign", "sign", *how, "--recursive", reference)
    for bill in sorted(release.folder.glob(f"{name}-*.spdx.json")):
        run("cosign", "attest", *how, "--type", "spdxjson", "--predicate", bill, reference)
    with tempfile.NamedTemporaryFile("w", suffix=".json") as predicate:
        json.dump(json.loads(release.file("provenance.json").read_text())["predicate"], predicate)
        predicate.flush()
        run("cosign", "attest", *how, "--type", "slsaprovenance1", "--predicate", predicate.name, reference)


def main(arguments: Sequence[str]) -> None:
    try:
        options = read_options(arguments)
        check_advisories()
        release = Release(options, read_source(), ROOT / "dist" / "release" / options.version)
        shutil.rmtree(release.folder, ignore_errors=True)
        release.folder.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="headroom-release-") as work:
            build_images(release, Path(work))
            build_chart(release, Path(work))
            build_command(release, Path(work))
        write_papers(release)
        push(release)
    except (ReleaseRefused, advisories.Unusable, ValueError) as error:
        sys.exit(f"make release: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
