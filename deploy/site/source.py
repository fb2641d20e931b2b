"""Reads constants and the text of expressions from the source without running it.

Reference pages list names that are made in many places, so this reads the syntax trees of all modules. An expression
that is not known here becomes `{its source}`, so that a message stays readable.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "agent", "manager")


@dataclass(frozen=True)
class Module:
    """One module: its tree, all nodes of it, what its names stand for, and the text of its lines."""

    name: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]
    lines: tuple[str, ...]
    constants: Mapping[str, ast.expr] = field(default_factory=dict)
    imported: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # name -> module, and its name there ("": it)

    def comment(self, line: int) -> str:
        """The comment at the end of a line, counted from 1, or else the one right above it."""
        _, _, behind = self.lines[line - 1].partition("  # ")
        above = self.lines[line - 2].strip() if line > 1 else ""
        return behind.strip() or (above[1:].strip() if above.startswith("#") else "")


@lru_cache(maxsize=1)
def modules() -> Mapping[str, Module]:
    """All modules of the product, by dotted name."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return {module.name: module for module in map(_module, files)}


def _module(file: Path) -> Module:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    name = ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=False)
            else:
                pairs = zip((target,), (value,), strict=True)
            constants |= {each.id: given for each, given in pairs if isinstance(each, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            constants[node.target.id] = node.value
    nodes = tuple(ast.walk(tree))
    return Module(name, tree, nodes, tuple(text.splitlines()), constants, dict(_imports(nodes)))


def _imports(nodes: tuple[ast.AST, ...]) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            for each in node.names:
                yield each.asname or each.name, (node.module, each.name)
        elif isinstance(node, ast.Import):
            for each in node.names:
                yield each.asname or each.name, (each.name, "")


def resolved(module: Module, expression: ast.expr) -> tuple[Module, str] | None:
    """Where the name in `expression` is defined, and what it is called there; None for what is no plain name."""
    known = modules()
    if isinstance(expression, ast.Name):
        home, name = module.imported.get(expression.id, (module.name, expression.id))
        if f"{home}.{name}" in known:
            return None
        return (known[home], name) if home in known else None
    if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
        home, name = module.imported.get(expression.value.id, ("", ""))
        target = known.get(f"{home}.{name}" if name else home)
        return (target, expression.attr) if target else None
    return None


def constant(module: Module, expression: ast.expr) -> str | None:
    """The string that `expression` stands for, if that follows from constants alone."""
    if isinstance(expression, ast.Constant):
        return expression.value if isinstance(expression.value, str) else None
    found = resolved(module, expression)
    if found is not None:
        home, name = found
        value = home.constants.get(name)
        return None if value is None else constant(home, value)
    return None


def text(module: Module, expression: ast.expr) -> str:
    """`expression` as text, with `{...}` for what only the running program knows."""
    plain = constant(module, expression)
    if plain is not None:
        return plain
    if isinstance(expression, ast.JoinedStr):
        return "".join(text(module, part) for part in expression.values)
    if isinstance(expression, ast.FormattedValue):
        return text(module, expression.value)
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Add):
        return text(module, expression.left) + text(module, expression.right)
    if isinstance(expression, ast.IfExp):
        return " or ".join(text(module, each) for each in (expression.body, expression.orelse))
    return f"{{{short(expression)}}}"


def short(expression: ast.expr) -> str:
    """The name that says what an expression is: the last of `a.b.c`, the first of another expression."""
    if isinstance(expression, ast.Attribute):
        return expression.attr
    names = re.findall(r"[A-Za-z_][A-Za-z_0-9]*", ast.unparse(expression))
    return names[0] if names else "..."
