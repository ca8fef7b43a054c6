"""`inferlane bench --save`, `--against` and `--against-repository`: records a model and holds it against a baseline.

A baseline in a second repository is measured in turns with the model, round by round; one in a file was measured at
another time, and what changed on the machine since then is taken for the model's doing. So a file needs the same kind
of machine and a larger tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from service.backends import open_backend
from service.bench import saved
from service.bench.compare import Comparison, Tolerance, compare
from service.bench.measure import Trial
from service.bench.origin import Mismatch, mismatch, origin_of
from service.bench.recording import Origin, Recording
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
        is_any_machine: whether to compare with a file of another machine or load all the same.
    """

    save: Path | None = None
    against: Path | None = None
    against_repository: Path | None = None
    export_times: Path | None = None
    rounds: int = 20
    min_slowdown: float | None = None
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


@dataclass(frozen=True, slots=True)
class GateResult:
    """What came of it: the recording, and a comparison and in what the origins differ where there is a baseline."""

    recording: Recording
    comparison: Comparison | None
    mismatch: Mismatch | None
    tolerance: Tolerance


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
        visits = visit(backends, _shared_buckets(backends, labels), trial, options.rounds)
    recordings = [Recording(to_series(each), origin) for each, origin in zip(visits, origins, strict=True)]
    _write(options, recordings[0], visits[0])
    is_interleaved = options.against_repository is not None
    was = recordings[1] if is_interleaved else baseline
    if was is None:
        return GateResult(recordings[0], None, None, options.tolerance)
    comparison = compare(was, recordings[0], options.tolerance, is_interleaved=is_interleaved)
    if not comparison.changes:
        raise InvalidInput(
            f"the baseline has no bucket and stage in common with model '{name}'; it has "
            f"{', '.join(map(str, comparison.gone[:8]))}, this run {', '.join(map(str, comparison.new[:8]))}"
        )
    return GateResult(recordings[0], comparison, difference, options.tolerance)


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
