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
BASE, BUILDER, FINAL = FILE.stages


def test_every_stage_begins_at_one_base_of_a_full_version_and_of_the_python_that_is_checked() -> None:
    assert [stage.base for stage in FILE.stages] == ["${BASE}", BASE.name, BASE.name]
    match = re.fullmatch(r"docker\.io/library/python:(\d+)\.(\d+)\.\d+-slim-[a-z]+", FILE.arguments["BASE"])
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


def test_what_is_run_are_scripts_of_the_repository() -> None:
    (compile_base,), (build,) = BASE.all("RUN"), BUILDER.all("RUN")
    assert compile_base.flags == ("--mount=type=bind,source=deploy/image,target=/image",)
    assert compile_base.value == "/image/precompile.sh /usr/local/lib/python3.*"
    assert build.value == "deploy/image/build.sh /opt/headroom"
    for script in ("precompile.sh", "build.sh"):
        assert (ROOT / "deploy" / "image" / script).stat().st_mode & 0o111 == 0o111
    assert not FINAL.all("RUN")


def test_the_image_takes_one_folder_from_the_builder_to_where_it_was_made() -> None:
    (copy,) = FINAL.all("COPY")
    assert copy.flags == (f"--from={BUILDER.name}",)
    assert copy.words == ["/opt/headroom", "/opt/headroom"]


def test_the_image_runs_headroom_without_a_shell_as_nobody_and_stops_on_sigterm() -> None:
    (entrypoint,), (user,), (signal,) = FINAL.all("ENTRYPOINT"), FINAL.all("USER"), FINAL.all("STOPSIGNAL")
    assert dockerfile.exec_form(entrypoint) == ["headroom"]
    assert list(PROJECT["scripts"]) == ["headroom", "kubectl-headroom"]
    assert user.value == "65532:65532"
    assert signal.value == "SIGTERM"


def test_the_ports_are_those_that_the_daemons_listen_on_in_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    listens = [agent.main.IN_POD_LISTEN, manager.main._default_listen()]
    (expose,) = FINAL.all("EXPOSE")
    assert expose.words == [listen.rpartition(":")[2] for listen in listens]


def test_the_labels_say_what_the_package_says() -> None:
    labels = {key.removeprefix("org.opencontainers.image."): value for key, value in FINAL.pairs("LABEL").items()}
    assert labels == {
        "title": PROJECT["name"],
        "description": PROJECT["description"],
        "version": "${VERSION}",
        "revision": "${REVISION}",
        "base.name": "${BASE}",
    }
    assert FINAL.pairs("ARG") == {"BASE": "", "VERSION": PROJECT["version"], "REVISION": "unknown"}


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
