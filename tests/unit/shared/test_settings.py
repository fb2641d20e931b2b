"""Settings: flags over environment over file, nothing unknown, nothing secret shown."""

from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
import pytest

from shared import settings
from shared.errors import InvalidInput


class Example(msgspec.Struct, frozen=True):
    REMOVED: ClassVar[dict[str, str]] = {"old_pace_seconds": "Use --report-interval."}

    node_name: str = ""
    report_interval_seconds: Annotated[float, msgspec.Meta(gt=0, description="how often")] = 60.0
    workers: Annotated[int, msgspec.Meta(ge=1)] = 4
    lease_seconds: int = 15
    dry_run: bool = False
    types: Annotated[tuple[str, ...], msgspec.Meta(extra={"short": "-t"})] = ()
    proxy: str | None = None
    token: Annotated[str, msgspec.Meta(extra={"secret": True})] = ""


def load(*argv: str, environment: dict[str, str] | None = None) -> Example:
    return settings.load(Example, program="example", description="", argv=argv, environment=environment or {})


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("nodeName: file\nworkers: 2\nreportInterval: 1m30s\n")
    environment = {"HEADROOM_NODE_NAME": "environment", "HEADROOM_WORKERS": "3", "HEADROOM_CONFIG": str(file)}
    loaded = load("--node-name", "flag", environment=environment)
    assert loaded == Example(node_name="flag", workers=3, report_interval_seconds=90.0)


@pytest.mark.parametrize(
    ("argv", "field", "value"),
    [
        (["--report-interval=250ms"], "report_interval_seconds", 0.25),
        (["--report-interval=30"], "report_interval_seconds", 30.0),
        (["--lease=1m30s"], "lease_seconds", 90),
        (["--dry-run"], "dry_run", True),
        (["--dry-run=false"], "dry_run", False),
        (["--types=a, b"], "types", ("a", "b")),
        (["--types=a", "-t", "b,c"], "types", ("a", "b", "c")),
        (["--proxy="], "proxy", None),
    ],
)
def test_a_flag_is_read_as_its_fields_type(argv: list[str], field: str, value: object) -> None:
    assert getattr(load(*argv), field) == value


@pytest.mark.parametrize(
    ("argv", "file", "parts"),
    [
        (["--workers=many"], "", ["--workers", "workers", "many"]),
        (["--workers=0"], "", ["--workers", "workers", "0", ">= 1"]),
        (["--report-interval=soon"], "", ["--report-interval", "reportInterval", "soon"]),
        (["--lease=1500ms"], "", ["--lease", "lease", "1500ms", "int"]),
        (["--report-interval=-1s"], "", ["--report-interval", "reportInterval", "> 0"]),
        ([], "worker: 3\n", ["settings.yaml", "worker", "unknown key", "workers"]),
        ([], "workers: many\n", ["settings.yaml", "workers", "many"]),
        ([], "oldPace: 3s\n", ["settings.yaml", "oldPace", "3s", "was removed. Use --report-interval."]),
        (["--old-pace=3s"], "", ["--old-pace", "oldPace", "3s", "was removed. Use --report-interval."]),
        ([], "reportInterval: soon\n", ["settings.yaml", "reportInterval", "soon"]),
        ([], "- a\n- b\n", ["settings.yaml", "mapping"]),
        ([], "a: [\n", ["--config", "settings.yaml"]),
    ],
)
def test_a_bad_value_is_refused_with_its_source_field_and_value(
    tmp_path: Path, argv: list[str], file: str, parts: list[str]
) -> None:
    if file:
        path = tmp_path / "settings.yaml"
        path.write_text(file)
        argv = [*argv, f"--config={path}"]
    with pytest.raises(InvalidInput) as refused:
        load(*argv)
    assert [part for part in parts if part not in str(refused.value)] == []


def test_a_variable_of_a_removed_setting_is_refused_with_what_replaces_it() -> None:
    with pytest.raises(InvalidInput, match=r"HEADROOM_OLD_PACE.*3s.*was removed\. Use --report-interval\."):
        load(environment={"HEADROOM_OLD_PACE": "3s"})


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"nowhere\.yaml"):
        load("--config=nowhere.yaml")


def test_an_unknown_flag_ends_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load("--wrokers=3")
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--wrokers=3" in line


def test_secrets_are_not_shown() -> None:
    shown = settings.shown(Example(token="s3cret", node_name="n1"))
    assert shown["token"] == "***"
    assert shown["nodeName"] == "n1"
    assert settings.shown(Example())["token"] == ""


class Second(msgspec.Struct, frozen=True):
    limit: Annotated[int, msgspec.Meta(ge=1, description="how many")] = 1


class Sections(msgspec.Struct, frozen=True):
    first: Example = Example()
    second: Second = Second()


def load_sections(*argv: str, environment: dict[str, str] | None = None) -> Sections:
    return settings.load(Sections, program="example", description="", argv=argv, environment=environment or {})


def test_fields_of_sections_stand_beside_each_other(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("limit: 7\nworkers: 2\n")
    loaded = load_sections("--lease=1m", environment={"HEADROOM_CONFIG": str(file), "HEADROOM_DRY_RUN": "true"})
    assert loaded == Sections(Example(workers=2, lease_seconds=60, dry_run=True), Second(7))
    assert settings.shown(loaded) == settings.shown(loaded.first) | {"limit": 7}
    assert list(settings.shown(loaded)) == [settings.key(each.name) for each in settings.fields(Sections)]
    assert settings.schemas(Sections)["limit"]["description"] == "how many"


@pytest.mark.parametrize(("argv", "parts"), [(["--limit=0"], ["--limit", ">= 1"]), (["--workers=0"], ["workers", "0"])])
def test_a_refusal_names_the_field_of_a_section_as_any_other(argv: list[str], parts: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        load_sections(*argv)
    assert all(part in str(refused.value) for part in parts)


def test_what_no_section_knows_is_refused() -> None:
    class Closed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        second: Second = Second()

    assert settings.combine(Closed, {"limit": 2}) == Closed(Second(2))
    with pytest.raises(msgspec.ValidationError, match="speed"):
        settings.combine(Closed, {"speed": 2})


class Tuned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: int = 1
    pause_seconds: settings.Fixed[float] = 5.0


class Process(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    tuned: Tuned = Tuned()


@pytest.mark.parametrize("kind", [Tuned, Process])
def test_code_alone_sets_what_is_fixed(kind: type[msgspec.Struct], tmp_path: Path) -> None:
    assert [each.name for each in settings.fields(kind)] == ["limit"]
    assert settings.shown(kind()) == {"limit": 1}
    assert settings.schemas(kind).keys() == {"limit"}
    assert settings.combine(Process, {"pause_seconds": 1.0}) == Process(tuned=Tuned(pause_seconds=1.0))
    file = tmp_path / "settings.yaml"
    file.write_text("pause: 1s\n")
    with pytest.raises(InvalidInput, match="unknown key"):
        settings.load(kind, program="test", description="", argv=["--config", str(file)], environment={})
    with pytest.raises(SystemExit):
        settings.load(kind, program="test", description="", argv=["--pause=1s"], environment={})
    environment = {"HEADROOM_PAUSE": "1s"}
    assert settings.load(kind, program="test", description="", argv=[], environment=environment) == kind()
