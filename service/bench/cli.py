"""`inferlane bench` as the command line takes it; it imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench(  # noqa: PLR0913 - an option each
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of a model of the repository.")],
    *,
    repository: Annotated[Path | None, typer.Option(help="Folder of the model repository.")] = None,
    bucket: Annotated[list[str] | None, typer.Option(help="Bucket: 8, 8x128, 8:media; all by default.")] = None,
    lanes: Annotated[list[int] | None, typer.Option(min=1, max=64, help="Lanes to try; 1 by default.")] = None,
    request_rows: Annotated[int | None, typer.Option(min=1, help="Rows per request; a whole batch by default.")] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(help="Sizes of a dimension, such as sequence=8:512: single rows of mixed sizes, batched."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=65536, help="With --dim: requests in flight.")] = 64,
    registered: Annotated[
        bool, typer.Option("--registered", help="Requests in page-locked memory, which the GPU reads by itself.")
    ] = False,
    duration: Annotated[float, typer.Option(min=0.01, max=3600, help="Measured seconds per figure.")] = 1.0,
    save: Annotated[Path | None, typer.Option(help="Record times in this file, as a baseline for --against.")] = None,
    against: Annotated[
        Path | None, typer.Option(help="Compare with this file, of --save or of trtexec; 10 % slower fails.")
    ] = None,
    against_repository: Annotated[
        Path | None, typer.Option(help="Compare with the same model in this repository, in turns; 5 % slower fails.")
    ] = None,
    tolerance: Annotated[float | None, typer.Option(min=0.1, help="Percent slower from which to fail.")] = None,
    rounds: Annotated[int, typer.Option(min=10, max=1000, help="Parts that a comparison cuts --duration into.")] = 20,
    export_times: Annotated[Path | None, typer.Option(help="Write times as trtexec --exportTimes does.")] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Time layers: what each takes, how far from its roof; or record them too.")
    ] = False,
    export_profile: Annotated[
        Path | None, typer.Option(help="Write layers' times as trtexec --exportProfile does; with one --bucket.")
    ] = None,
    any_machine: Annotated[
        bool, typer.Option("--any-machine", help="Compare with a file of another machine, or of other options.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")] = False,
) -> None:
    """Measure a model's engine side by itself, host to host and without HTTP, against what the device alone can do.

    With --against or --against-repository, exit status 3 if a stage, a bucket or a layer got slower beyond noise, 4 if
    the machine did as well, so that nothing can be said.
    """
    from service.bench import command  # noqa: PLC0415
    from service.bench.gate import GateOptions  # noqa: PLC0415
    from service.bench.measure import Trial  # noqa: PLC0415
    from service.bench.run import BESIDE_DIM, BESIDE_LAYERS, refuse_beside  # noqa: PLC0415
    from service.settings import load_settings  # noqa: PLC0415

    settings = load_settings() if repository is None else load_settings(repository=repository)
    options = GateOptions(
        save=save,
        against=against,
        against_repository=against_repository,
        export_times=export_times,
        rounds=rounds,
        min_slowdown=None if tolerance is None else tolerance / 100.0,
        has_layers=layers,
        is_any_machine=any_machine,
    )
    of_lanes = {
        "--lanes": lanes,
        "--request-rows": request_rows,
        "--registered": registered,
        "--save": save,
        "--against": against,
        "--against-repository": against_repository,
        "--export-times": export_times,
    }
    of_layers = {"--layers": layers, "--export-profile": export_profile}
    if dim:
        refuse_beside({"--bucket": bucket, **of_lanes, **of_layers}, BESIDE_DIM)
        command.mixed(settings, model, dim, concurrency=concurrency, duration_s=duration, as_json=as_json)
        return
    if export_profile or (layers and not options.is_wanted):
        refuse_beside(of_lanes, BESIDE_LAYERS)
        command.layers(settings, model, bucket or [], export_profile, as_json=as_json)
        return
    trial = Trial(
        lane_counts=tuple(lanes or [1]),
        duration_s=duration,
        rows_per_request=request_rows,
        is_registered=registered,
    )
    if options.is_wanted:
        raise typer.Exit(command.gate(settings, model, bucket or [], trial, options, as_json=as_json).value)
    command.buckets(settings, model, bucket or [], trial, as_json=as_json)
