"""Names that a reader can look up: one class by one name, and functions that say what they do."""

import ast
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("agent", "manager", "shared", "deploy")

# Rooms in which no function is named by a participle or a preposition alone.
NAMED_BY_VERBS = ("manager",)
BARE = frozenset(
    {
        "after", "apart", "at", "before", "built", "by", "cut", "done", "for", "found", "from", "given", "gone",
        "granted", "held", "in", "judged", "kept", "known", "left", "lost", "made", "narrowed", "never", "of", "on",
        "over", "past", "put", "seen", "set", "shown", "taken", "told", "under", "with", "within", "without",
    }
)  # fmt: skip


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules(rooms: tuple[str, ...]) -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(itertools.chain.from_iterable((ROOT / room).rglob("*.py") for room in rooms)):
        yield path.relative_to(ROOT).as_posix(), parsed(path)


def is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id.endswith("property") for each in function.decorator_list)


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for name, tree in modules(ROOMS):
        for each in tree.body:
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_"):
                found[each.name].append(name)
    assert found
    assert {name: where for name, where in found.items() if len(where) > 1} == {}


def test_no_function_is_named_by_a_participle_or_a_preposition_alone() -> None:
    found = [
        f"{name}:{each.lineno} {each.name}"
        for name, tree in modules(NAMED_BY_VERBS)
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name.strip("_") in BARE and not is_property(each)
    ]
    assert found == []
