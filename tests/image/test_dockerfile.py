"""What deploy/Dockerfile says is so, and it names nothing that is not there."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import agent.main
import manager.main
from tests.image import dockerfile

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
FILE = dockerfile.parse((ROOT / "deploy" / "Dockerfile").read_text())
BASE, BUILDER, COMMON = (FILE.stage(name) for name in ("base", "builder", "common"))
COMPONENTS = ("agent", "manager")
every_component = pytest.mark.parametrize("component", COMPONENTS)


def test_every_stage_begins_at_one_base_of_a_full_version_by_digest_and_of_the_python_that_is_checked() -> None:
    bases = {"base": "${BASE}", "builder": "base", "common": "base"}
    bases |= {f"{component}-builder": "builder" for component in COMPONENTS} | dict.fromkeys(COMPONENTS, "common")
    assert {stage.name: stage.base for stage in FILE.stages} == bases
    match = re.fullmatch(
        r"docker\.io/library/python:(\d+)\.(\d+)\.\d+-slim-[a-z]+@sha256:[0-9a-f]{64}", FILE.arguments["BASE"]
    )
    assert match
    assert f"{match[1]}.{match[2]}" == PYPROJECT["tool"]["mypy"]["python_version"]


def test_what_is_copied_into_the_builder_is_all_that_reaches_the_build() -> None:
    copied = {word for instruction in BUILDER.all("COPY") for word in instruction.words[:-1]}
    assert {file.parts[0] for file in dockerfile.context(ROOT)} == copied
    for instruction in BUILDER.all("COPY"):
        assert not instruction.flags
        for word in instruction.words[:-1]:
            target = instruction.words[-1]
            assert target == ("./" if (ROOT / word).is_file() else word)


def test_neither_bytecode_nor_the_dockerfile_itself_reaches_the_build() -> None:
    files = dockerfile.context(ROOT)
    assert Path("deploy/cli.py") in files
    assert Path("deploy/Dockerfile") not in files
    assert not [file for file in files if file.is_relative_to("deploy/local") or file.is_relative_to("deploy/helm")]
    assert not [file for file in files if "__pycache__" in file.parts or file.suffix == ".pyc"]


@every_component
def test_what_is_run_are_scripts_of_the_repository(component: str) -> None:
    (compile_base,), (build,) = BASE.all("RUN"), FILE.stage(f"{component}-builder").all("RUN")
    assert compile_base.flags == ("--mount=type=bind,source=deploy/image,target=/image",)
    assert compile_base.value == "/image/precompile.sh /usr/local/lib/python3.*"
    assert build.value == f"deploy/image/build.sh {component} /opt/headroom"
    for script in ("precompile.sh", "build.sh"):
        assert (ROOT / "deploy" / "image" / script).stat().st_mode & 0o111 == 0o111
    assert not [stage for stage in (BUILDER, COMMON, FILE.stage(component)) if stage.all("RUN")]


@every_component
def test_the_image_takes_one_folder_from_the_builder_to_where_it_was_made(component: str) -> None:
    (copy,) = FILE.stage(component).all("COPY")
    assert copy.flags == (f"--from={component}-builder",)
    assert copy.words == ["/opt/headroom", "/opt/headroom"]


@every_component
def test_the_image_runs_its_component_without_a_shell_or_privileges_and_stops_on_sigterm(component: str) -> None:
    (entrypoint,), (user,), (signal,) = (
        FILE.stage(component).all("ENTRYPOINT"),
        COMMON.all("USER"),
        COMMON.all("STOPSIGNAL"),
    )
    assert dockerfile.exec_form(entrypoint) == ["python", "-m", component]
    assert user.value == "65532:65532"
    assert signal.value == "SIGTERM"


def test_the_ports_are_those_that_the_daemons_listen_on_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    listens = {"agent": agent.main.IN_POD_LISTEN, "manager": manager.main._default_listen()}
    for component, listen in listens.items():
        (expose,) = FILE.stage(component).all("EXPOSE")
        assert expose.words == [listen.rpartition(":")[2]]


def test_the_labels_say_what_the_package_says() -> None:
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in COMMON.pairs("LABEL").items()}
    assert labels == {
        "title": "headroom",
        "description": PROJECT["description"],
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "base.name": "${BASE}",
    }
    assert COMMON.pairs("ARG") == {"BASE": "", "VERSION": PROJECT["version"], "REVISION": "unknown"}


@pytest.mark.parametrize("line", ["HEALTHCHECK CMD true", "CMD sh", "VOLUME /data", "from nothing"])
def test_an_instruction_that_has_no_place_in_it_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        dockerfile.parse(f"FROM base\n{line}\n")


def test_tests_that_a_base_brings_along_are_left_out_and_what_else_does_not_compile_is_told(tmp_path: Path) -> None:
    def precompiled() -> int:
        return subprocess.run([ROOT / "deploy" / "image" / "precompile.sh", tmp_path], check=False).returncode

    library = tmp_path / "lib" / "python3.11"
    for folder in ("test", "lib2to3/tests/data"):
        (library / folder).mkdir(parents=True)
        (library / folder / "bad.py").write_text("print 'of another age'")
    (library / "tests.py").write_text("good = True")
    assert precompiled() == 0
    assert list((library / "__pycache__").glob("tests.*.pyc"))
    (library / "bad.py").write_text("print 'of another age'")
    assert precompiled() != 0
