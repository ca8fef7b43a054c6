"""`inferlane bench --save`, `--against` and `--against-repository`: records a model and holds it against a baseline.

A baseline in a second repository is measured in turns with the model, round by round; one in a file was measured at
another time, and what changed on the machine since then is taken for the model's doing. So a file needs the same kind
of machine and a larger tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from service.backends import open_backend
from service.bench import saved
from service.bench.bootstrap import Ratio
from service.bench.compare import Comparison, Tolerance, compare
from service.bench.layer_rounds import LayerRounds
from service.bench.measure import Trial
from service.bench.origin import Mismatch, mismatch, origin_of
from service.bench.recording import Origin, Recording
from service.bench.reference import REFERENCE, Reference, is_machine_slower, machine_ratio
from service.bench.rounds import Visits, to_series, visit
from service.bench.run import find_model, named_buckets
from service.bench.trtexec import times_document
from service.buckets import Bucket
from service.errors import InvalidInput
from service.repository.card import load_card
from service.repository.layout import ModelFolder
from service.runtime.protocol import Backend

INTERLEAVED_TOLERANCE = 0.05
SAVED_TOLERANCE = 0.10
"""Larger, because two runs of a process differ by more than the rounds of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateOptions:
    """What is wanted.

    Attributes:
        save: file to write the recording to.
        against: file to compare it with.
        against_repository: repository whose model of the same name is measured in turns, and compared with.
        export_times: file to write in the format of trtexec's `--exportTimes`.
        rounds: visits to each bucket.
        min_slowdown: share that counts; None takes the default of the kind of baseline.
        has_layers: whether layers are recorded and compared too.
        is_any_machine: whether to compare with a file of another machine or load all the same.
    """

    save: Path | None = None
    against: Path | None = None
    against_repository: Path | None = None
    export_times: Path | None = None
    rounds: int = 20
    min_slowdown: float | None = None
    has_layers: bool = False
    is_any_machine: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether anything of this was asked for."""
        return any((self.save, self.against, self.against_repository, self.export_times))

    @property
    def tolerance(self) -> Tolerance:
        """What counts."""
        default = INTERLEAVED_TOLERANCE if self.against_repository else SAVED_TOLERANCE
        return Tolerance(default if self.min_slowdown is None else self.min_slowdown)


class Outcome(Enum):
    """What came of a comparison; the value is the exit status, apart from 1 (a failure) and 2 (called wrongly)."""

    PASSED = 0
    SLOWER = 3
    UNDECIDED = 4
    """Something is slower than in the file, and so is the machine."""


@dataclass(frozen=True, slots=True)
class GateResult:
    """The recording, and what came of comparing it.

    Attributes:
        recording: of the model.
        tolerance: what counts.
        comparison: None where there is no baseline.
        mismatch: in what the origins differ; None where the baseline has none.
        machine: what the machine itself takes over what it took for the file; None where that is not known, or the
            baseline was measured in turns.
    """

    recording: Recording
    tolerance: Tolerance
    comparison: Comparison | None = None
    mismatch: Mismatch | None = None
    machine: Ratio | None = None

    @property
    def outcome(self) -> Outcome:
        """Whether something got slower, and whether the machine may be why."""
        if self.comparison is None or not self.comparison.slower:
            return Outcome.PASSED
        return Outcome.UNDECIDED if is_machine_slower(self.machine, self.tolerance) else Outcome.SLOWER


def run_gate(
    repository: Path, name: str, labels: Sequence[str], trial: Trial, options: GateOptions, *, cpu_threads: int
) -> GateResult:
    """Records the model, writes the files that are wanted, and compares; blocking.

    Args:
        repository: the model's.
        name: of the model.
        labels: buckets; all known ones if there are none.
        trial: how; of one count of lanes.
        options: what is wanted.
        cpu_threads: of ONNX Runtime.

    Raises:
        InvalidInput: options contradict each other, the baseline cannot be read or does not compare.
        ServiceError: a model cannot be opened, or failed.
    """
    _check(options, labels, trial)
    baseline = saved.read(options.against, labels[0] if len(labels) == 1 else "") if options.against else None
    folder = find_model(repository, name)
    folders = [folder] + ([find_model(options.against_repository, name)] if options.against_repository else [])
    with ExitStack() as stack:
        backends = [stack.enter_context(closing(_opened(each, cpu_threads))) for each in folders]
        origins = [
            origin_of(each, backend.spec, trial, cpu_threads=cpu_threads)
            for each, backend in zip(folders, backends, strict=True)
        ]
        difference = _comparable(options, baseline, origins)
        recordings = _record(backends, _shared_buckets(backends, labels), trial, options, origins)
    was = recordings[1] if options.against_repository else baseline
    if was is None:
        return GateResult(recordings[0], options.tolerance)
    comparison = compare(was, recordings[0], options.tolerance, is_interleaved=options.against_repository is not None)
    if not comparison.changes:
        raise InvalidInput(
            f"the baseline has no bucket and stage in common with model '{name}'; it has "
            f"{', '.join(map(str, comparison.gone[:8]))}, this run {', '.join(map(str, comparison.new[:8]))}"
        )
    machine = machine_ratio(baseline, recordings[0], options.tolerance.error_rate) if baseline else None
    return GateResult(recordings[0], options.tolerance, comparison, difference, machine)


def _check(options: GateOptions, labels: Sequence[str], trial: Trial) -> None:
    if options.against and options.against_repository:
        raise InvalidInput("--against and --against-repository are two baselines; give one of them")
    if len(trial.lane_counts) != 1:
        raise InvalidInput("a recording is of one number of lanes; give --lanes once")
    if options.export_times and len(labels) != 1:
        raise InvalidInput("--export-times writes the batches of one bucket; name it with one --bucket")


def _comparable(options: GateOptions, baseline: Recording | None, origins: Sequence[Origin]) -> Mismatch | None:
    """In what the baseline's origin differs, before anything is measured; None if it has none, or there is none."""
    was = origins[1] if len(origins) > 1 else baseline.origin if baseline else None
    if was is None:
        return None
    found = mismatch(was, origins[0])
    if found.machine and not options.is_any_machine and options.against is not None:
        raise InvalidInput(
            f"'{options.against}' was recorded otherwise: {'; '.join(found.machine)}. Record a baseline here with "
            "--save, or compare all the same with --any-machine"
        )
    return found


def _opened(folder: ModelFolder, cpu_threads: int) -> Backend:
    return open_backend(load_card(folder.path), folder.version(), cpu_threads=cpu_threads)


def _shared_buckets(backends: Sequence[Backend], labels: Sequence[str]) -> list[Bucket]:
    """The buckets that are named, or all those that every side has."""
    ours = named_buckets(backends[0].spec, labels)
    if labels:
        for backend in backends[1:]:
            named_buckets(backend.spec, labels)
        return ours
    shared = [bucket for bucket in ours if all(bucket in set(each.spec.buckets.known()) for each in backends)]
    if not shared:
        raise InvalidInput("the models of the two repositories share no bucket; give both cards one in [buckets]")
    return shared


def _record(
    backends: Sequence[Backend],
    buckets: Sequence[Bucket],
    trial: Trial,
    options: GateOptions,
    origins: Sequence[Origin],
) -> list[Recording]:
    """Measures every model in turns, and writes the files that are wanted of the first."""
    with ExitStack() as stack:
        reference = Reference()
        layers = LayerRounds(backends, buckets if options.has_layers else (), stack)

        def before_round() -> None:
            reference.run()
            layers.run()

        visits = visit(backends, buckets, trial, options.rounds, before_round)
    beside = {REFERENCE: tuple(reference.rounds)}
    recordings = [
        Recording(beside | to_series(of_lanes) | of_layers, origin)
        for of_lanes, of_layers, origin in zip(visits, layers.series(), origins, strict=True)
    ]
    _write(options, recordings[0], visits[0])
    return recordings


def _write(options: GateOptions, recording: Recording, visits: Visits) -> None:
    if options.save:
        saved.write(recording, options.save)
    if options.export_times:
        batches = [
            (timings, enqueue_ns)
            for results in visits.values()
            for result in results
            for timings, enqueue_ns in zip(result.timings, result.enqueues_ns, strict=True)
        ]
        saved.write_json(times_document(batches), options.export_times)
