"""What README.md and docs/ say holds: links lead somewhere, and commands do what is printed below them.

Every `curl` and `python` command of a `console` or `sh` block runs against the demo server, in order and in one folder
per document, which holds what a clone has after `make serve`. `curl` must be answered with a success; where a `json`
block follows, the last command must answer that, and with a failure if it shows an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from engines.profiles import FIRST_SPAN, cut
from service import cli
from service.batching.pending import Pending
from service.batching.policy import Dispatch, Rules, next_action
from service.buckets import Bucket, BucketTable, CostTable
from service.repository.card import load_card
from service.units import NS_PER_MS
from tests.doubles.demo_server import ROOT, demo_repository, demo_server
from tests.doubles.requests import NO_FUTURE, make_request
from tests.doubles.running_server import RunningServer, start_server

__all__ = ["demo_repository", "demo_server", "start_server"]

DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
DOCUMENTS_THAT_RUN = ("README.md", "docs/clients.md", "docs/protocol.md", "docs/tasks/ocr.md", "docs/tuning.md")

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
CURL = re.compile(r"\bcurl\b")
INFERLANE = re.compile(r"^(?:\$ )?(?:\S*/)?inferlane ([^#\n]+)", re.MULTILINE)
PYTHON = re.compile(r"^(?:\S*/)?python3?(?= (?!-m (?:pip|venv|pytest)\b))")
DECIMAL = re.compile(r"\d+\.\d+")
CURL_FAILED = 22
"""Exit status of `curl --fail-with-body` for an answer of 400 and above."""


@dataclass(frozen=True)
class Command:
    text: str
    answer: object | None = None


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    error: str


def identifier(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(path: Path) -> set[str]:
    """The fragments that GitHub gives the headings of a document."""
    headings = HEADING.findall(FENCE.sub("", path.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path) -> list[str]:
    broken = []
    for target in LINK.findall(without_code(path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        linked = path.parent / name if name else path
        if not linked.exists() or (fragment and linked.suffix == ".md" and fragment not in anchors(linked)):
            broken.append(target)
    return broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=identifier)
def test_relative_links_lead_somewhere(path):
    assert broken_links(path) == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / "there.md").write_text("# A `heading`, here\n\n```sh\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](gone.md) [c](there.md#a-heading-here) [d](there.md#no-heading) [e](https://x.example/gone)"
        "`[f](gone.py)`\n```\n[g](gone.py)\n```\n"
    )
    assert broken_links(page) == ["gone.md", "there.md#no-heading"]


def runnable(language: str, block: str) -> list[str]:
    """The `curl` and `python` commands of a block; in `console` blocks, lines without a prompt are output."""
    commands: list[str] = []
    is_open = False
    for line in block.splitlines():
        if is_open:
            commands[-1] += f"\n{line}"
        elif (language == "sh" and not line.startswith("#")) or line.startswith("$ "):
            commands.append(line.removeprefix("$ "))
        else:
            continue
        is_open = line.endswith("\\")
    return [command for command in commands if CURL.search(command) or PYTHON.match(command)]


def commands_of(text: str) -> Iterator[Command]:
    fences = list(FENCE.finditer(text))
    for fence, following in zip(fences, [*fences[1:], None], strict=True):
        if fence[1] not in {"sh", "console"}:
            continue
        commands = runnable(fence[1], fence[2])
        answers = following is not None and following[1] == "json" and following.start() == fence.end() + 1
        for number, command in enumerate(commands, start=1):
            is_last = number == len(commands)
            yield Command(command, json.loads(following[2]) if answers and is_last and following else None)


def localized(command: str, server: RunningServer) -> str:
    """The command for this server instead of port 8000, with this Python, and shorter where it measures."""
    command = PYTHON.sub(sys.executable, command)
    command = re.sub(r"(localhost|127\.0\.0\.1):8000", server.address, command)
    command = re.sub(r"(read_line|find_text)\.py", rf"\g<0> --server {server.address}", command)
    command = re.sub(r"-m loadtest\.bench", rf"\g<0> --url {server.url} --warm-up 0.2", command)
    return re.sub(r"--duration [\d.]+", "--duration 1", command)


def run(command: str, folder: Path, server: RunningServer) -> Done:
    environment = {**os.environ, "CURL_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    script = f"set -euo pipefail\n{localized(command, server)}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, check=False, timeout=60
    )
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def agrees(shown: object, got: object) -> bool:
    """Whether an answer is the one shown: the same members and texts, numbers in them within 5 %."""
    if isinstance(shown, dict) and isinstance(got, dict):
        return shown.keys() == got.keys() and all(agrees(shown[key], got[key]) for key in shown)
    if isinstance(shown, list) and isinstance(got, list):
        return len(shown) == len(got) and all(map(agrees, shown, got))
    if type(shown) is float and type(got) is float:
        return got == pytest.approx(shown, rel=0.05)
    if isinstance(shown, str) and isinstance(got, str):
        numbers = [list(map(float, DECIMAL.findall(text))) for text in (shown, got)]
        return DECIMAL.sub("", shown) == DECIMAL.sub("", got) and agrees(*numbers)
    return shown == got


@pytest.fixture
def clone(tmp_path: Path, demo_repository: Path) -> Path:
    """A folder with what a clone holds after `make serve`, and the pages drawn; curl fails where the server refuses."""
    (tmp_path / ".curlrc").write_text("fail-with-body\n")
    for name in ("docs", "loadtest"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "demo-repository").symlink_to(demo_repository)
    script = ROOT / "docs" / "examples" / "make_pages.py"
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    return tmp_path


@pytest.mark.e2e
@pytest.mark.parametrize("document", DOCUMENTS_THAT_RUN)
def test_commands_run_and_answer_what_is_shown(document, clone, demo_server):
    commands = list(commands_of((ROOT / document).read_text(encoding="utf-8")))
    assert commands
    for command in commands:
        done = run(command.text, clone, demo_server)
        said = f"{command.text}\n{done.output}\n{done.error}"
        is_error = isinstance(command.answer, dict) and "error" in command.answer
        assert done.status == (CURL_FAILED if is_error else 0), said
        if command.answer is not None:
            assert agrees(command.answer, json.loads(done.output)), said


def test_commands_are_found():
    text = (
        "```sh\nmake serve\n# curl x\ncurl a \\\n  b\n.venv/bin/python -m pip install x\n```\n"
        "```console\n$ python3 x.py | head -1\nout curl\n```\n```json\n{}\n```\n"
        "```toml\ncurl = 1\n```\n"
    )
    assert list(commands_of(text)) == [Command("curl a \\\n  b"), Command("python3 x.py | head -1", {})]


INFERLANE_COMMANDS = [
    pytest.param(command, id=f"{identifier(path)}-{command.strip()}")
    for path in DOCUMENTS
    for fence in FENCE.finditer(path.read_text(encoding="utf-8"))
    if fence[1] in {"sh", "console"}
    for command in INFERLANE.findall(fence[2])
]


@pytest.mark.parametrize("command", INFERLANE_COMMANDS)
def test_commands_and_options_of_inferlane_exist(command):
    """Some take minutes or a GPU, so they are not run: with `--help` the rest is read, and a wrong option refused."""
    result = CliRunner().invoke(cli.app, [*command.split(), "--help"])
    assert result.exit_code == 0, result.output


def test_options_that_do_not_exist_are_found():
    assert INFERLANE.findall("$ .venv/bin/inferlane models --bogus  # why\nmake inferlane x\n") == ["models --bogus  "]
    assert CliRunner().invoke(cli.app, ["models", "--bogus", "--help"]).exit_code != 0


def test_profiles_are_cut_as_engines_md_says():
    assert cut([1, 2, 4, 8, 16, 32, 64, 128], FIRST_SPAN) == ((1, 8), (9, 128))
    assert cut([1, 8, 32], FIRST_SPAN) == ((1, 1), (2, 32))
    assert cut([1, 2, 4, 8, 16, 32], FIRST_SPAN) == ((1, 2), (3, 32))


CARDS = [
    pytest.param(fence[2], id=f"{identifier(path)}-{number}")
    for path in DOCUMENTS
    for number, fence in enumerate(FENCE.finditer(path.read_text(encoding="utf-8")))
    if fence[1] == "toml"
]


@pytest.mark.parametrize("card", CARDS)
def test_model_cards_are_valid(card, tmp_path):
    (tmp_path / "model.toml").write_text(card, encoding="utf-8")
    (tmp_path / "labels.txt").write_text("a\n", encoding="utf-8")
    (tmp_path / "tokenizer.json").write_text("{}", encoding="utf-8")
    load_card(tmp_path)


WORKED_EXAMPLE = [
    (
        {160: (4, 6, 10, 18), 320: (7, 12, 22, 42)},
        [("2x160", "AC"), ("1x320", "B"), ("1x160", "D")],
    ),
    (
        {160: (4, 4.2, 4.5, 5), 320: (5, 5.2, 5.6, 6.5)},
        [("4x320", "ABCD")],
    ),
]
"""Of docs/architecture.md: costs in milliseconds by width, for batches of 1, 2, 4 and 8; and what is dispatched."""


@pytest.mark.parametrize(("costs_ms", "dispatched"), WORKED_EXAMPLE)
def test_the_worked_example_is_what_the_policy_does(costs_ms, dispatched):
    buckets = BucketTable((1, 2, 4, 8), ("width",), ((160, 320),))
    costs = CostTable(
        {
            Bucket(size, (width,)): int(cost_ms * NS_PER_MS)
            for width, by_size in costs_ms.items()
            for size, cost_ms in zip(buckets.batch_sizes, by_size, strict=True)
        }
    )
    waiting = []
    for sequence, (name, width) in enumerate({"A": 150, "B": 300, "C": 100, "D": 160}.items()):
        home = buckets.home(1, (width,))
        waiting.append(
            Pending(
                make_request(dims=(width,), request_id=name),
                sequence=sequence,
                home=home,
                work_ns=costs.row_cost_ns(home, buckets.batch_sizes),
                queued_ns=0,
                future=NO_FUTURE,
            )
        )
    got = []
    while waiting:
        groups = {home: [item for item in waiting if item.home == home] for home in {item.home for item in waiting}}
        action = next_action(groups, [0], 0, Rules(buckets, costs, max_queue_delay_ns=0, lane_depth=1))
        assert isinstance(action, Dispatch)
        got.append((action.bucket.label, "".join(item.request.request_id for item in action.items)))
        waiting = [item for item in waiting if item not in action.items]
    assert got == dispatched


@pytest.mark.parametrize(
    ("shown", "got", "agree"),
    [
        ({"a": 0.92}, {"a": 0.925}, True),
        ({"a": 0.92}, {"a": 0.8}, False),
        ({"a": [1, "x"]}, {"a": [1, "x"]}, True),
        ({"a": [1, "x"]}, {"a": [1, "y"]}, False),
        ("0.92:0:cat", "0.921:0:cat", True),
        ("0.92:0:cat", "0.92:0:dog", False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1], [1, 2], False),
    ],
)
def test_answers_are_compared(shown, got, agree):
    assert agrees(shown, got) is agree
