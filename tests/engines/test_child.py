"""Child processes: real ones, each of a few lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from engines import lifeline
from engines.child import MAX_LAST_WORDS, MAX_LINE_BYTES, Ending, Patience, run_child
from tests.doubles.running_server import wait_for

RUN_STDIN = "tests.doubles.run_stdin"
IMPATIENT = Patience(interrupt_s=0.2, terminate_s=0.2)


def run(source: str, patience: Patience = IMPATIENT) -> tuple[list[str], Ending]:
    """Runs `source` to its end, and asks it to end once it has said something."""
    lines: list[str] = []
    is_cut_off = threading.Event()

    def on_line(line: str) -> bool:
        lines.append(line)
        if line == "deaf":
            is_cut_off.set()
        return not line.startswith("?")

    ending = run_child(
        RUN_STDIN, source, on_line, is_cut_off=is_cut_off, on_asked=lambda: lines.append("asked"), patience=patience
    )
    return lines, ending


def never() -> None:
    raise AssertionError("nobody cut it off")


def is_alive(pid: int) -> bool:
    """Whether a process runs: one that has ended and was not reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_lines_come_as_they_are_written_and_the_status_at_the_end() -> None:
    lines, ending = run("import os, sys\nos.write(1, b'one\\ntw'); os.write(1, b'o\\nlast'); sys.exit(3)")
    assert lines == ["one", "two", "last"]
    assert (ending.status, ending.was_asked, ending.last_words) == (3, False, ())


def test_the_last_words_are_those_of_both_streams_that_nobody_understood() -> None:
    _, ending = run("import sys\nprint('?chatter')\nsys.stdout.flush()\nsys.exit('why')")
    assert ending.status == 1
    assert sorted(ending.last_words) == ["?chatter", "why"]


def test_a_talkative_child_is_not_kept_whole() -> None:
    lines, ending = run(
        f"import sys\nprint('x' * {3 * MAX_LINE_BYTES})\nfor number in range(1000): print(number, file=sys.stderr)"
    )
    assert max(map(len, lines)) <= 2 * MAX_LINE_BYTES
    assert sum(map(len, lines)) == 3 * MAX_LINE_BYTES
    assert ending.last_words == tuple(map(str, range(1000 - MAX_LAST_WORDS, 1000)))


def test_a_child_that_dies_before_it_has_read_is_told_by_its_status() -> None:
    ending = run_child(
        "tests.doubles.nothing", "x" * (1 << 20), lambda line: True, is_cut_off=threading.Event(), on_asked=never
    )
    assert ending.status == 1
    assert "No module named tests.doubles.nothing" in ending.last_words[-1]


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_signal_that_ends_a_child_is_its_status(number: signal.Signals) -> None:
    _, ending = run(
        f"import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.kill(os.getpid(), {number:d})"
    )
    assert (ending.status, ending.was_asked) == (-number, False)


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        ("signal.signal(signal.SIGINT, lambda *_: sys.exit(7))", 7),
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", -signal.SIGTERM),
        ("[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]", -signal.SIGKILL),
    ],
)
def test_a_child_that_is_no_longer_wanted_is_asked_ever_more_strongly(handler: str, status: int) -> None:
    lines, ending = run(f"import signal, sys, time\n{handler}\nprint('deaf', flush=True)\ntime.sleep(60)")
    assert (ending.status, ending.was_asked, lines) == (status, True, ["deaf", "asked"])


@pytest.mark.parametrize(
    ("waited_s", "due"),
    [(0.0, signal.SIGINT), (6.9, signal.SIGINT), (7.0, signal.SIGTERM), (8.9, signal.SIGTERM), (9.0, signal.SIGKILL)],
)
def test_patience(waited_s: float, due: signal.Signals) -> None:
    assert Patience().signal_after(waited_s) is due


def test_what_a_child_started_ends_with_it() -> None:
    lines, _ = run(
        "import subprocess, sys\n"
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=2).pid, flush=True)"
    )
    wait_for(lambda: not is_alive(int(lines[0])))


def test_what_a_child_started_cannot_talk_on_after_it() -> None:
    talk = "import os\nwhile True:\n    os.write(1, b'x' * 30000 + b'\\n')"
    lines = 0

    def count(line: str) -> bool:
        nonlocal lines
        lines += 1
        time.sleep(0.001)  # slower than the talkers
        assert lines < 1000, "whoever talks faster than it is listened to would never come to an end"
        return True

    begin = f"subprocess.Popen([sys.executable, '-c', {talk!r}])"
    source = f"import subprocess, sys, time\nfor _ in range(3):\n    {begin}\ntime.sleep(0.2)"
    ending = run_child(RUN_STDIN, source, count, is_cut_off=threading.Event(), on_asked=never)
    assert ending.status == 0


def test_a_caller_that_fails_leaves_no_child_behind() -> None:
    pids: list[int] = []

    def fail(line: str) -> bool:
        pids.append(int(line))
        raise KeyboardInterrupt

    source = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    with pytest.raises(KeyboardInterrupt):
        run_child(RUN_STDIN, source, fail, is_cut_off=threading.Event(), on_asked=never)
    assert not is_alive(pids[0])


@pytest.mark.chaos
def test_a_child_ends_when_its_parent_is_killed() -> None:
    tell_and_sleep = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(60)"
    source = (
        "import threading\nfrom engines.child import run_child\n"
        f"run_child({RUN_STDIN!r}, {tell_and_sleep!r}, lambda line: print(line, flush=True) is None, "
        "is_cut_off=threading.Event(), on_asked=print)"
    )
    parent = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    assert is_alive(child)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not is_alive(child))


def test_a_child_whose_parent_is_gone_already_does_not_begin() -> None:
    command = [sys.executable, lifeline.__file__, str(os.getppid()), RUN_STDIN]
    ended = subprocess.run(command, input="print('begun')", capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert (ended.stdout, ended.stderr.strip()) == ("", f"process {os.getppid()}, which started this one, is gone")


def test_a_folder_in_the_working_directory_is_not_mistaken_for_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("engines", "tests"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('the wrong one')")
    monkeypatch.chdir(tmp_path)
    lines, ending = run("import engines\nprint(engines.__file__)")
    assert (ending.status, lines) == (0, [str(Path(lifeline.__file__).with_name("__init__.py"))])
