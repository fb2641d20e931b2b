"""A release on a real registry: pushed, pulled by digest, verified, and made again."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.image import locked, release
from deploy.image.layout import CONFIG, INDEX, LAYER, Blob, ImageLayout, diff_id, gzipped, tar_of
from shared.plugins import DISTRIBUTION
from tests.apiserver import binaries
from tests.image import dockerfile, emulator, registry
from tests.image.releasing import VERSION, Released, checkout, cloned, environment, make, make_key
from tests.support.programs import do_without

ROOT = Path(__file__).parents[2]
IMPORTS = """
import importlib, pathlib, pkgutil, platform, sys
packages, *ours = sys.argv[1:]
compiled = [file.relative_to(packages) for file in pathlib.Path(packages).rglob("*.so")]
names = [".".join([*file.parts[:-1], file.name.split(".")[0]]) for file in compiled if ".libs" not in file.parts[0]]
for package in ours:
    found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
    names += [each.name for each in found if not each.name.endswith("__main__")]
assert len(names) > 100, names
for name in names:
    importlib.import_module(name)
print(platform.machine(), len(names))
"""
"""Imports each compiled module of a folder, and each module of the packages."""
MACHINES = {"amd64": 62, "arm64": 183}  # as ELF files number them


def push_base(programs: dict[str, Path], folder: Path, address: str) -> str:
    """A base of this interpreter, for both architectures by name alone: nothing of it is run."""
    dockerfile.copy_interpreter(folder / "base")
    tar = tar_of(folder / "base" / "usr", "usr", 0)
    layout = ImageLayout(folder / "layout")
    version = ".".join(map(str, sys.version_info[:3]))
    manifests = []
    for architecture in MACHINES:
        document = {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin", f"PYTHON_VERSION={version}"]},
            "rootfs": {"type": "layers", "diff_ids": [diff_id(tar)]},
        }
        made = layout.add_manifest(layout.add_document(document, CONFIG), [layout.add(gzipped(tar), LAYER)])
        platform = {"platform": {"architecture": architecture, "os": "linux"}}
        manifests.append(Blob(made.media_type, made.digest, made.size_bytes, platform).reference)
    layout.close(layout.add_document({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}, INDEX))
    base = f"{address}/library/python:{version}"
    subprocess.run([programs["crane"], "push", "--insecure", layout.folder, base], check=True, capture_output=True)
    return base


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Released]:
    try:
        programs = registry.tools(os.environ) | {"helm": binaries.provided("helm", os.environ)}
    except binaries.Unavailable as error:
        do_without(str(error))
    folder = tmp_path_factory.mktemp("release")
    make_key(programs, folder)
    with registry.serving(programs["registry"], folder) as address:
        base = push_base(programs, folder, address)
        source = checkout(folder / "source")
        repository = f"{address}/platform"
        done = make(
            programs,
            source,
            f"--registry={repository}",
            f"--base={base}",
            "--insecure",
            f"--key={folder / 'cosign.key'}",
        )
        assert done.returncode == 0, done.stderr
        where = source / "dist" / "release" / VERSION
        yield Released(where, address, repository, folder / "cosign.pub", programs, folder)


def manifests(released: Released, component: str) -> dict[str, dict[str, Any]]:
    """The images of an index by architecture, as the registry has them."""
    reference = released.reference(f"headroom-{component}")
    index = json.loads(released.run("crane", "manifest", "--insecure", reference))
    repository = reference.partition("@")[0]
    return {
        each["platform"]["architecture"]: json.loads(
            released.run("crane", "manifest", "--insecure", f"{repository}@{each['digest']}")
        )
        for each in index["manifests"]
    }


@pytest.mark.parametrize("component", locked.COMPONENTS)
def test_each_image_is_pulled_by_digest_for_both_architectures(released: Released, component: str) -> None:
    reference = released.reference(f"headroom-{component}")
    assert set(manifests(released, component)) == set(MACHINES)
    repository = reference.partition("@")[0]
    assert (
        released.run("crane", "digest", "--insecure", f"{repository}:{VERSION}").strip() == reference.partition("@")[2]
    )
    for architecture, machine in MACHINES.items():
        released.run("crane", "validate", "--insecure", f"--platform=linux/{architecture}", "--remote", reference)
        folder = exported(released, component, architecture)
        libraries = [*folder.rglob("*.so")]
        assert {int.from_bytes(library.read_bytes()[18:20], "little") for library in libraries} == {machine}
        assert os.readlink(folder / "bin" / "python3") == release.INTERPRETER


def exported(released: Released, component: str, architecture: str) -> Path:
    """What an image adds to its base, in a folder."""
    folder = released.folders / f"{component}-{architecture}"
    if not folder.exists():
        archive, reference = folder.with_suffix(".tar"), released.reference(f"headroom-{component}")
        released.run("crane", "export", "--insecure", f"--platform=linux/{architecture}", reference, archive)
        folder.mkdir()
        subprocess.run(["tar", "--extract", "--file", archive, "--directory", folder, "opt"], check=True)
    return folder / "opt" / "headroom"


@pytest.mark.parametrize("component", locked.COMPONENTS)
def test_an_image_of_arm64_runs_in_an_emulator_and_every_module_of_it_is_imported(
    released: Released, component: str
) -> None:
    try:
        python = emulator.python(os.environ)
    except binaries.Unavailable as error:
        do_without(str(error))
    (packages,) = exported(released, component, emulator.ARCHITECTURE).glob("lib/python3.*/site-packages")
    variables = {"PYTHONPATH": str(packages), "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}

    def ran(*words: str) -> str:
        command = [*python, "-S", *words]
        return subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, check=True).stdout

    assert f"usage: headroom {component}" in ran("-m", component, "--help")
    assert ran("-c", IMPORTS, str(packages), component, "shared").split()[0] == "aarch64"


@pytest.mark.parametrize("component", locked.COMPONENTS)
def test_an_image_is_run_as_the_dockerfile_says(released: Released, component: str) -> None:
    file = dockerfile.parse((ROOT / "deploy" / "Dockerfile").read_text())
    stages = file.lineage(file.stage(component))
    said = {each.keyword: each for stage in stages for each in stage.instructions}
    reference = released.reference(f"headroom-{component}")
    config = json.loads(released.run("crane", "config", "--insecure", "--platform=linux/amd64", reference))["config"]
    assert config["Entrypoint"] == dockerfile.exec_form(said["ENTRYPOINT"])
    assert config["User"] == said["USER"].value
    assert config["StopSignal"] == said["STOPSIGNAL"].value
    assert list(config["ExposedPorts"]) == [f"{said['EXPOSE'].value}/tcp"]
    assert config["Labels"].keys() == file.stage("common").pairs("LABEL").keys()
    assert "PATH=/opt/headroom/bin:/usr/local/bin:/usr/bin:/bin" in config["Env"]
    assert "PYTHONDONTWRITEBYTECODE=1" in config["Env"]


def test_the_chart_is_pulled_by_helm_and_names_the_images_by_digest(released: Released) -> None:
    chart = f"oci://{released.repository}/charts/headroom"
    released.run("helm", "pull", chart, "--version", VERSION, "--plain-http", "--destination", released.folders)
    archive = released.folders / f"headroom-{VERSION}.tgz"
    assert archive.read_bytes() == (released.folder / archive.name).read_bytes()
    rendered = yaml.safe_load_all(released.run("helm", "template", "headroom", archive))
    pods = [
        each["spec"]["template"]["spec"] for each in rendered if each and each["kind"] in ("Deployment", "DaemonSet")
    ]
    images = {container["image"] for pod in pods for container in pod["containers"]}
    assert images == {released.reference(f"headroom-{component}") for component in locked.COMPONENTS}


def test_the_files_are_those_of_the_checksums_and_the_bills_list_what_is_installed(released: Released) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "checksums.txt"], cwd=released.folder, check=True)
    named = {line.split()[1] for line in (released.folder / "checksums.txt").read_text().splitlines()}
    assert named == {file.name for file in released.folder.iterdir() if file.is_file()} - {"checksums.txt"}
    for component in locked.COMPONENTS:
        lock = locked.closure(locked.requirements(component), locked.pins(locked.LOCK.read_text()))
        for architecture in MACHINES:
            name = f"headroom-{component}-{VERSION}-{architecture}"
            bill = json.loads((released.folder / f"{name}.spdx.json").read_text())
            listed = {package["name"] for package in bill["packages"]}
            assert listed - {pin.name for pin in lock} == {DISTRIBUTION}
            assert "numpy" in listed
            licences = (released.folder / f"{name}.licences.txt").read_text()
            assert len(licences.splitlines()) == len(listed)
            assert f"{DISTRIBUTION} {VERSION}: Apache-2.0\n" in licences
            assert "NOASSERTION" not in licences


def test_signatures_bills_and_provenance_verify_with_the_key_and_with_no_other(released: Released) -> None:
    offline = ("--insecure-ignore-tlog", "--allow-http-registry")
    key = ("--key", str(released.public_key))
    for name in released.digests:
        released.run("cosign", "verify", *key, *offline, released.reference(name))
    agent = released.reference("headroom-agent")
    for kind in ("spdxjson", "slsaprovenance1"):
        released.run("cosign", "verify-attestation", *key, "--type", kind, *offline, agent)
    statement = json.loads((released.folder / "provenance.json").read_text())
    subjects = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    assert subjects[f"{released.repository}/headroom-agent"] == released.digests["headroom-agent"].partition(":")[2]

    other = released.folders / "other"
    other.mkdir()
    make_key(released.programs, other)
    released.run("cosign", "verify", "--key", other / "cosign.pub", *offline, agent, status=1)


def test_the_command_line_is_one_file_and_a_wheel(released: Released) -> None:
    (file,) = released.folder.glob("*.pyz")
    done = subprocess.run(
        [sys.executable, "-I", file, "--version"],
        env=os.environ | {"SHIV_ROOT": str(released.folders / "shiv")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"headroom {VERSION}\n"
    (wheel,) = released.folder.glob("*.whl")
    assert {"agent", "deploy", "manager", "shared"} <= {
        name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()
    }


def test_a_second_release_of_the_commit_has_the_same_digests(released: Released) -> None:
    """Of one architecture, as both are made in the same way."""
    source = cloned(released, "again")
    base = f"{released.address}/library/python:{'.'.join(map(str, sys.version_info[:3]))}"
    again = f"{released.address}/again"
    done = make(
        released.programs, source, f"--registry={again}", f"--base={base}", "--insecure", "--architectures=amd64"
    )
    assert done.returncode == 0, done.stderr
    folder = source / "dist" / "release" / VERSION
    for component in locked.COMPONENTS:
        digests = {
            released.run(
                "crane", "digest", "--insecure", "--platform=linux/amd64", f"{where}/headroom-{component}:{VERSION}"
            )
            for where in (released.repository, again)
        }
        assert len(digests) == 1
    for pattern in ("*.whl", "*.pyz", "*-amd64.spdx.json", "*-amd64.licences.txt"):
        files = sorted(folder.glob(pattern))
        assert files
        assert {file.name: file.read_bytes() for file in files} == {
            file.name: (released.folder / file.name).read_bytes() for file in files
        }


def test_the_base_gets_the_digest_that_its_tag_has_now(released: Released) -> None:
    source = cloned(released, "renewed")
    version = ".".join(map(str, sys.version_info[:3]))
    image = f"{released.address}/library/python"
    dockerfile_there = source / "deploy" / "Dockerfile"
    text = dockerfile_there.read_text()
    said = dockerfile.parse(text).arguments["BASE"]
    dockerfile_there.write_text(text.replace(said, f"{image}:unheard-of@sha256:{64 * '0'}"))
    command = [sys.executable, "-m", "deploy.image.base"]
    variables = environment(released.programs)
    refused = subprocess.run(command, cwd=source, env=variables, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "make base: crane digest" in refused.stderr
    subprocess.run([*command, version], cwd=source, env=variables, check=True)
    digest = released.run("crane", "digest", "--insecure", f"{image}:{version}").strip()
    assert dockerfile_there.read_text() == text.replace(said, f"{image}:{version}@{digest}")


def test_a_checkout_with_changes_and_a_base_of_another_python_are_refused(released: Released) -> None:
    source = cloned(released, "changed")
    (source / "agent" / "new.py").touch()
    refused = make(released.programs, source, f"--registry={released.repository}")
    assert refused.returncode == 1
    assert "changes that are not committed" in refused.stderr
    assert "agent/new.py" in refused.stderr
