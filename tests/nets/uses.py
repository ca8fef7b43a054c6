"""Which names of TensorRT's API our modules use, found in their syntax trees.

TensorRT's types differ between its versions, so our modules have them as `Any`. Whatever is annotated so must be in
`OBJECTS`, which says by the name of the variable or attribute what it is, or the analysis fails; from there on the
bindings' own signatures tell what calls return.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MODULE = "module"
"""The type of TensorRT's module itself."""

FOREIGN = "foreign"
"""The type of what is `Any` but none of TensorRT's objects."""

CLASS = "class "
"""Precedes the type of a class or an enumeration, as against that of its instances."""

_PASSED_THROUGH = ("trt_check",)

Returns = Callable[[str, str], "str | None"]
"""Class and member → the class of what it gives, or None if that is none of TensorRT's."""


@dataclass(frozen=True)
class Use:
    """One name that some line uses.

    Attributes:
        place: file and line.
        owner: `MODULE`, a class, or `CLASS` with one.
        name: what is used of it.
        keywords: of a call, its keyword arguments.
        positions: of a call, how many arguments it has without a keyword.
        is_written: whether it is assigned.
        is_probed: whether the line only asks if there is such a name.
    """

    place: str
    owner: str
    name: str
    keywords: tuple[str, ...] = ()
    positions: int = 0
    is_written: bool = False
    is_probed: bool = False

    @property
    def owner_class(self) -> str:
        return self.owner.removeprefix(CLASS)


@dataclass
class Analysis:
    """What was found in one module.

    Attributes:
        uses: every use.
        problems: what the analysis cannot tell; empty if it understood all.
        words: the module's constants in capitals, if it gives `hasattr` or `getattr` names that do not stand there.
    """

    uses: list[Use] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    words: set[str] = field(default_factory=set)


def analyse(path: Path, objects: dict[str, str], returns: Returns) -> Analysis:
    """Finds the uses in one module.

    Args:
        path: the module's file.
        objects: types by the names of variables and, with a point before them, of attributes; `file.py:name` where
            a file means something else by a variable's name.
        returns: what the bindings' members give.
    """
    return analyse_text(path.read_text(encoding="utf-8"), path.name, objects, returns)


def analyse_text(text: str, name: str, objects: dict[str, str], returns: Returns) -> Analysis:
    """The same of a module's text."""
    found = Analysis()
    tree = ast.parse(text)
    typer = _Typer(name, objects, returns, found)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            typer.visit_fields(node)
    for function in _scopes(tree):
        typer.visit_scope(function)
    if typer.has_names_from_elsewhere:
        found.words.update(_capitals(tree))
    return found


def _scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """Outermost functions and methods; what is nested in them shares their variables."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _scopes(ast.Module(node.body, []))


def _capitals(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_member(node.value):
                    yield node.value


def _is_member(word: str) -> bool:
    return word.isupper() and word.replace("_", "").isalnum() and len(word) > 2


class _Typer:
    """Types the expressions of one module and writes down what is used of TensorRT's."""

    def __init__(self, name: str, objects: dict[str, str], returns: Returns, found: Analysis) -> None:
        self._file = name
        self._objects = objects
        self._returns = returns
        self._found = found
        self._variables: dict[str, str | None] = {}
        self.has_names_from_elsewhere = False

    def visit_fields(self, node: ast.ClassDef) -> None:
        """The fields of a dataclass must be known like variables."""
        for part in node.body:
            if isinstance(part, ast.AnnAssign) and _is_any(part.annotation) and isinstance(part.target, ast.Name):
                self._known(f".{part.target.id}", part.lineno)

    def visit_scope(self, scope: ast.AST) -> None:
        self._variables = {}
        for node in _in_order(scope):
            if isinstance(node, ast.arg) and _is_any(node.annotation):
                self._variables[node.arg] = self._known(node.arg, node.lineno)
            elif isinstance(node, ast.AnnAssign) and _is_any(node.annotation):
                self._declare(node)
            elif isinstance(node, ast.Assign):
                self._assign(node)
            elif isinstance(node, ast.For | ast.comprehension):
                self._bind(node.target, _element(self._type(node.iter)))
            elif isinstance(node, ast.ClassDef):
                self._subclass(node)
            elif isinstance(node, ast.Call):
                self._probe(node)
        calls = {id(node.func): node for node in ast.walk(scope) if isinstance(node, ast.Call)}
        for node in ast.walk(scope):
            if isinstance(node, ast.Attribute):
                self._attribute(node, calls.get(id(node)))

    def _known(self, name: str, line: int) -> str | None:
        kind = self._objects.get(f"{self._file}:{name}", self._objects.get(name))
        if kind is None:
            self._problem(line, f"'{name}' is Any, and OBJECTS does not say what it is")
        return kind

    def _declare(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Attribute):
            self._known(f".{node.target.attr}", node.lineno)
        elif isinstance(node.target, ast.Name):
            self._variables[node.target.id] = self._known(node.target.id, node.lineno)

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                for part, value in zip(target.elts, node.value.elts, strict=True):
                    self._bind(part, self._type(value))
            else:
                self._bind(target, self._type(node.value))

    def _bind(self, target: ast.expr, kind: str | None) -> None:
        if isinstance(target, ast.Name):
            self._variables[target.id] = kind or self._variables.get(target.id)

    def _type(self, node: ast.expr) -> str | None:
        """What an expression is, or None if it is none of TensorRT's."""
        if isinstance(node, ast.Name):
            return self._variables.get(node.id)
        if isinstance(node, ast.Attribute):
            return self._objects.get(f".{node.attr}") or self._member(self._type(node.value), node.attr)
        if isinstance(node, ast.Call):
            return self._called(node)
        if isinstance(node, ast.IfExp):
            return self._type(node.body) or self._type(node.orelse)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            for part in node.generators:
                self._bind(part.target, _element(self._type(part.iter)))
            inner = self._type(node.elt)
            return f"list[{inner}]" if inner else None
        return None

    def _member(self, owner: str | None, name: str) -> str | None:
        if owner is None or owner == FOREIGN:
            return None
        if owner == MODULE:
            return f"{CLASS}{name}" if name[:1].isupper() else None
        if owner.startswith(CLASS):
            return f"{owner}.{name}" if name[:1].isupper() and not name.isupper() else owner.removeprefix(CLASS)
        return self._returns(owner, name)

    def _called(self, node: ast.Call) -> str | None:
        function = node.func
        if isinstance(function, ast.Name) and function.id in _PASSED_THROUGH:
            return self._type(node.args[0])
        if isinstance(function, ast.Name) and function.id == "getattr":
            owner = self._type(node.args[0])
            constant = node.args[1].value if isinstance(node.args[1], ast.Constant) else "X"
            return self._member(owner, str(constant))
        if isinstance(function, ast.Attribute):
            owner = self._type(function.value)
            if owner == MODULE:
                return function.attr
            return self._returns(owner, function.attr) if owner and owner != FOREIGN else None
        return None

    def _attribute(self, node: ast.Attribute, call: ast.Call | None) -> None:
        owner = self._type(node.value)
        if owner is None or owner == FOREIGN or owner.startswith("list[") or node.attr.startswith("__"):
            return
        self._found.uses.append(
            Use(
                place=f"{self._file}:{node.lineno}",
                owner=owner,
                name=node.attr,
                keywords=tuple(each.arg for each in call.keywords if each.arg) if call else (),
                positions=sum(not isinstance(each, ast.Starred) for each in call.args) if call else 0,
                is_written=isinstance(node.ctx, ast.Store),
            )
        )

    def _probe(self, node: ast.Call) -> None:
        """`hasattr` and `getattr` with a name that stands there; others take theirs from the module's words."""
        if not isinstance(node.func, ast.Name) or node.func.id not in ("hasattr", "getattr"):
            return
        owner = self._type(node.args[0])
        if owner is None or owner == FOREIGN:
            return
        if not isinstance(node.args[1], ast.Constant):
            self.has_names_from_elsewhere = True
            return
        name = str(node.args[1].value)
        self._found.uses.append(Use(f"{self._file}:{node.lineno}", owner, name, is_probed=True))

    def _subclass(self, node: ast.ClassDef) -> None:
        """What we override must be there to be overridden."""
        for base in node.bases:
            kind = self._type(base)
            if kind is None or not kind.startswith(CLASS):
                continue
            for part in node.body:
                if isinstance(part, ast.FunctionDef) and not part.name.startswith("__"):
                    place = f"{self._file}:{part.lineno}"
                    parameters = len(part.args.args) - 1
                    self._found.uses.append(Use(place, kind.removeprefix(CLASS), part.name, positions=parameters))

    def _problem(self, line: int, words: str) -> None:
        self._found.problems.append(f"{self._file}:{line}: {words}")


def _in_order(scope: ast.AST) -> Iterable[ast.AST]:
    """The nodes as they stand in the text, so that a variable is known before it is used."""
    nodes = [node for node in ast.walk(scope) if hasattr(node, "lineno") or isinstance(node, ast.comprehension)]
    return sorted(nodes, key=_position)


def _position(node: ast.AST) -> tuple[int, int]:
    at = node.target if isinstance(node, ast.comprehension) else node
    return at.lineno, at.col_offset  # type: ignore[attr-defined]


def _is_any(annotation: ast.expr | None) -> bool:
    return annotation is not None and ast.unparse(annotation) in ("Any", "list[Any]", "Any | None")


def _element(kind: str | None) -> str | None:
    return kind.removeprefix("list[").removesuffix("]") if kind else None
