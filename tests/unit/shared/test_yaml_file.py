"""YAML from outside: what no text may do to the process that reads it."""

import itertools
import re
from pathlib import Path

import pytest
import yaml

from deploy import dumps
from deploy.prices import book
from manager.autoscaler.cloudprovider.simulated import config as simulated_cloud
from manager.autoscaler.expander import priority
from manager.autoscaler.pricing import price_file
from manager.autoscaler.reporting.status import read_status
from manager.autoscaler.utilization import node_groups
from shared import yaml_file
from shared.errors import InvalidInput

DEEP = ["[" * 200_000, "{a: " * 200_000, "- " * 5_000, "".join(" " * level + "a:\n" for level in range(500))]
LETTERS = "abcdefghi"


def nested_aliases(first: str, line: str) -> str:
    """Nine lines, each of which refers nine times to the one before."""
    lines = [f"a: &a {first}"]
    for before, name in itertools.pairwise(LETTERS):
        lines.append(f"{name}: &{name} {line.format(', '.join([f'*{before}'] * 9))}")
    return "\n".join(lines)


BOMBS = {
    "lists": nested_aliases("[x, x, x, x, x, x, x, x, x]", "[{}]"),
    "merged mappings": nested_aliases("{k: v, l: w}", "{{<<: [{}]}}"),
    "a long text, often": f"a: &a {'x' * 10_000}\nb: [{'*a, ' * 10_000}]",
    "a list in itself": "a: &a [*a]",
    "a mapping that merges itself": "a: &a {<<: *a}",
    "a mapping that is its own key": "a: &a {*a : 1}",
    "a long prefix of tags": f"%TAG !e! tag:{'x' * 10_000}\n---\na: [{'!e!str x, ' * 10_000}]",
    "a number of many digits": f"a: {'9' * 10_000}",
    "a number in base 60": f"a: 1{':1' * 100_000}",
    "a fraction in base 60": f"a: 1{':1' * 100_000}.5",
    "a number in base 16": f"a: 0x{'f' * 100_000}",
}
bombs = pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)


@bombs
def test_a_text_that_takes_more_than_it_shows_is_refused_in_a_few_words(text: str) -> None:
    with pytest.raises(
        yaml.YAMLError, match=r"aliases expand to more than 4 MiB|a number of \d+ characters|%TAG"
    ) as refused:
        yaml_file.parse(text)
    assert len(str(refused.value)) < 100


@bombs
def test_every_reader_of_yaml_refuses_such_a_text(tmp_path: Path, text: str) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(text)
    readers = (
        lambda: yaml_file.read(file, "--config"),
        lambda: node_groups.load(file),
        lambda: simulated_cloud.load(file),
        lambda: price_file.load(file),
        lambda: book.open_book(discounts=str(file)),
        lambda: dumps.read([file], {}, lambda kind, head: True),
        lambda: priority.parse(text, source=priority.SOURCE),
    )
    for read in readers:
        with pytest.raises(InvalidInput) as refused:
            read()
        assert len(str(refused.value)) < 1000
    assert read_status(text) is None


def test_nothing_else_in_the_product_reads_yaml() -> None:
    root = Path(__file__).parents[3]
    reads = re.compile(r"yaml\.(?:\w*load(?:_all)?|parse|compose(?:_all)?|scan|C?\w*Loader)\b")
    rooms = ("agent", "manager", "shared", "deploy", "examples/cloudprovider/machine_room.py")
    files = [
        each for room in rooms for each in ([root / room] if room.endswith(".py") else (root / room).rglob("*.py"))
    ]
    found = [str(each.relative_to(root)) for each in files if reads.search(each.read_text("utf-8"))]
    assert found == ["shared/yaml_file.py"]


def test_aliases_of_a_file_written_by_hand_are_read() -> None:
    shared = "".join(f"    label-{number}: value\n" for number in range(10))
    text = f"common: &common\n{shared}groups:\n" + "".join(f"- {{<<: *common, name: g{n}}}\n" for n in range(1200))
    found = yaml_file.parse(text)
    assert found == yaml.safe_load(text)
    assert len(found["groups"]) == 1200


@pytest.mark.parametrize(
    "text",
    [
        "a: !" + "x" * 100_000 + " b",
        "a: *" + "x" * 100_000,
        "? " + "x" * 100_000 + "\n: [",
        "a: !!bool " + "x" * 100_000,
    ],
    ids=["tag", "alias", "key", "boolean"],
)
def test_an_error_quotes_no_more_of_a_text_than_a_reader_wants(text: str) -> None:
    with pytest.raises(yaml.YAMLError) as refused:
        yaml_file.parse(text)
    assert len(str(refused.value)) <= yaml_file.MOST_PROBLEM + len("...")


def test_a_date_is_the_text_that_it_is_to_kubernetes() -> None:
    assert yaml_file.parse("a: 2026-01-31\nb: 2026-01-31T12:00:00Z") == {"a": "2026-01-31", "b": "2026-01-31T12:00:00Z"}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_file_is_read_in_each_encoding_that_shells_write(encoding: str) -> None:
    assert yaml_file.parse("a: größer".encode(encoding)) == {"a": "größer"}


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2", "---\n---\n" * 1000])
def test_a_second_document_is_refused_where_one_is_expected(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="single document"):
        yaml_file.parse(text)
    assert next(yaml_file.documents(text)) == next(yaml.safe_load_all(text))


@pytest.mark.parametrize("text", DEEP, ids=["lists", "mappings", "items", "block"])
def test_a_text_that_nests_without_end_is_refused_before_a_stack_ends(text: str) -> None:
    with pytest.raises(yaml.YAMLError, match="more than 100 deep"):
        yaml_file.parse(text)
    assert read_status(text) is None


def test_what_configuration_nests_is_read() -> None:
    text = "[" * 100 + "]" * 100
    assert yaml_file.parse(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", [*DEEP, "{", "a: !!bool maybe"])
def test_a_file_of_a_flag_that_cannot_be_read_is_refused_with_the_flags_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        yaml_file.read(file, "--config")
    assert (refused.value.source, refused.value.field, refused.value.value) == ("--config", "file", str(file))
