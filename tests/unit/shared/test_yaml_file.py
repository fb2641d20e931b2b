"""YAML from outside: what no text may do to the process that reads it."""

from pathlib import Path

import pytest
import yaml

from manager.autoscaler.reporting.status import read_status
from shared import yaml_file
from shared.errors import InvalidInput

DEEP = ["[" * 200_000, "{a: " * 200_000, "- " * 5_000, "".join(" " * level + "a:\n" for level in range(500))]


@pytest.mark.parametrize("text", DEEP, ids=["lists", "mappings", "items", "block"])
def test_a_text_that_nests_without_end_is_refused_before_a_stack_ends(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="more than 100 deep"):
        yaml_file.parse(text)
    assert read_status(text) is None


def test_what_configuration_nests_is_read() -> None:
    text = "[" * 100 + "]" * 100
    assert yaml_file.parse(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", [*DEEP, "a: 2026-02-30", "{", "a: !!bool maybe"])
def test_a_file_of_a_flag_that_cannot_be_read_is_refused_with_the_flags_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        yaml_file.read(file, "--config")
    assert (refused.value.source, refused.value.field, refused.value.value) == ("--config", "file", str(file))
