"""The analysis of our own modules, on small ones: what it finds, and what it refuses to guess."""

from __future__ import annotations

import pytest

from tests.nets.bindings import Bindings
from tests.nets.test_attributes import complaint
from tests.nets.uses import CLASS, FOREIGN, MODULE, Analysis, Use, analyse_text

OBJECTS = {"module": MODULE, ".native": "Engine", "config": "Config", "x.py:native": "Context", "value": FOREIGN}
RETURNS = {("Engine", "make_context"): "Context", ("Context", "tensor"): "Tensor"}


def analysed(text: str) -> Analysis:
    return analyse_text(text, "x.py", OBJECTS, lambda owner, name: RETURNS.get((owner, name)))


def found(text: str) -> set[tuple[str, str]]:
    analysis = analysed(text)
    assert analysis.problems == []
    return {(use.owner, use.name) for use in analysis.uses}


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("def f(config: Any):\n    config.set(1)", {("Config", "set")}),
        (
            "def f(module: Any):\n    mode = module.Mode\n    return mode.INPUT",
            {(MODULE, "Mode"), (f"{CLASS}Mode", "INPUT")},
        ),
        ("def f(module: Any):\n    made = module.Engine(1)\n    made.close", {(MODULE, "Engine"), ("Engine", "close")}),
        (
            "class C:\n    def f(self, engine):\n        context = engine.native.make_context()\n        context.run()",
            {("Engine", "make_context"), ("Context", "run")},
        ),
        (
            "def f(engine):\n    native, _ = engine.native, 3\n"
            "    tensors = (native.make_context().tensor(i) for i in x)\n    return [each.name for each in tensors]",
            {("Engine", "make_context"), ("Context", "tensor"), ("Tensor", "name")},
        ),
        (
            "def f(engine):\n    made = trt_check(engine.native.make_context(), 'a')\n    made.run",
            {("Engine", "make_context"), ("Context", "run")},
        ),
        ("def f(native: Any):\n    native.run", {("Context", "run")}),
        (
            "def f(module: Any):\n    kinds = module.Kind.Inner if module else module.Kind\n    kinds.ONE",
            {(MODULE, "Kind"), (f"{CLASS}Kind", "Inner"), (f"{CLASS}Kind.Inner", "ONE")},
        ),
        (
            "def f(module: Any):\n    class M(module.Base):\n"
            "        def __init__(self): 0\n        def start(self): 0\n",
            {(MODULE, "Base"), ("Base", "start")},
        ),
        ("def f(value: Any, path):\n    value.x\n    path.y", set()),
    ],
)
def test_what_is_found(text: str, uses: set[tuple[str, str]]) -> None:
    assert found(text) == uses


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(thing: Any): pass", "thing"),
        ("def f(things: list[Any]): pass", "things"),
        ("class C:\n    field: Any", ".field"),
        ("class C:\n    def f(self):\n        self._own: Any = None", "._own"),
        ("def f():\n    local: Any = g()", "local"),
    ],
)
def test_what_is_any_must_be_known(text: str, name: str) -> None:
    (problem,) = analysed(text).problems
    assert f"'{name}' is Any" in problem


def test_how_a_name_is_used() -> None:
    text = "def f(config: Any):\n    config.level = 2\n    config.set(1, kind=2)\n    hasattr(config, 'new')\n"
    level, call, probe = sorted(analysed(text).uses, key=lambda use: use.place)
    assert level.is_written
    assert (call.positions, call.keywords) == (1, ("kind",))
    assert (probe.name, probe.is_probed) == ("new", True)


def test_names_from_tables() -> None:
    table = "NAMES = {'a': 'FP16', 'b': ('INT8', 'lower')}\nOTHER = 'DOCUMENTED'\n"
    dynamic = "def f(config: Any):\n    return getattr(config, NAMES['a'])\n"
    assert analysed(table).words == set()
    assert analysed(table + dynamic).words == {"FP16", "INT8", "DOCUMENTED"}


BINDINGS = Bindings(
    "x 1.0",
    is_lean=False,
    names=frozenset({"Engine", "ExecutionContextAllocationStrategy"}),
    classes={
        "Engine": {
            "run": {"signatures": [[["self", "name", "index"], "bool"]], "is_writable": True},
            "size": {"signatures": [[["self"], "int"]], "is_writable": False},
        }
    },
)


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (Use("p", MODULE, "Engine"), None),
        (Use("p", MODULE, "Absent"), "has no module.Absent"),
        (Use("p", "Engine", "run", ("index",), positions=1), None),
        (Use("p", "Engine", "run", positions=2), None),
        (Use("p", "Engine", "run", positions=3), "takes"),
        (Use("p", "Engine", "run", ("wrong",)), "takes"),
        (Use("p", "Engine", "run", ("name",), positions=1), "takes"),
        (Use("p", "Engine", "size"), None),
        (Use("p", "Engine", "size", is_written=True), "cannot be written"),
        (Use("p", "Engine", "absent"), "has no Engine.absent"),
        (Use("p", "Engine", "asked_for"), None),
        (Use("p", "Context", "run"), "has no Context.run"),
        (Use("p", "Engine", "create_execution_context_without_device_memory"), None),
        (Use("p", "Engine", "device_memory_size"), "has no Engine.device_memory_size"),
        (Use("p", "Config", "progress_monitor"), None),
        (Use("p", "Engine", "create_execution_context", positions=1), "has no Engine.create_execution_context"),
    ],
)
def test_what_is_wrong_with_a_use(use: Use, said: str | None) -> None:
    words = complaint(BINDINGS, use, {"asked_for"})
    if said is None:
        assert words is None
    else:
        assert words is not None
        assert said in words
