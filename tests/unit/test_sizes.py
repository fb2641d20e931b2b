"""Functions and modules that fit a reader's eye."""

import ast
from collections.abc import Iterator

from tests.unit.test_names import ROOMS, ROOT, modules

MOST_LINES_OF_A_MODULE = 450
MOST_LINES, MOST_PARAMETERS = 59, 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> Iterator[tuple[str, Function]]:
    for name, tree in modules(ROOMS):
        if not name.endswith("_pb2.py"):  # these are generated
            for each in ast.walk(tree):
                if isinstance(each, Function):
                    yield f"{name}:{each.lineno} {each.name}", each


def is_command(function: Function) -> bool:
    """Whether its parameters are the options of a command, each with its help."""
    return "typer." in ast.unparse(function.args)


def lines(function: Function) -> int:
    first = function.body[0] if is_command(function) else function
    return (function.end_lineno or first.lineno) - first.lineno + 1


def parameters(function: Function) -> int:
    given = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    return len(given) - (given[:1] in (["self"], ["cls"]))


def test_every_function_fits_a_screen() -> None:
    found = {name: lines(each) for name, each in functions()}
    assert found
    assert {name: many for name, many in found.items() if many > MOST_LINES} == {}


def test_every_function_has_few_parameters() -> None:
    found = {name: parameters(each) for name, each in functions() if not is_command(each)}
    assert found
    assert {name: many for name, many in found.items() if many > MOST_PARAMETERS} == {}


def test_every_module_is_read_in_one_go() -> None:
    found = {name: len((ROOT / name).read_text().splitlines()) for name, _ in modules(ROOMS)}
    assert {name: many for name, many in found.items() if many > MOST_LINES_OF_A_MODULE and "_pb2" not in name} == {}
