"""A plan's answers beside ONNX Runtime's, bucket by bucket, before the plan gets its name.

What cannot be compared is said and accepted; what was compared and differs is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engines.build import AccuracyCheck
from engines.events import LogLine, OnEvent, PhaseFinished, PhaseStarted, PhaseStep
from engines.report import AccuracyReport, BucketAccuracy
from engines.request import BuildRequest
from service.cards import ModelCard
from service.errors import ExecutionFailed, ModelLoadFailed
from service.repository.card import load_card
from service.repository.layout import find
from service.runtime.cuda.device import Cuda
from service.runtime.golden import Agreement, OtherModel, ReferenceFailed, RememberingReference, compare, goodness
from service.runtime.onnx.reference import open_reference
from service.runtime.trt.backend import TensorRTBackend
from service.runtime.trt.flavour import Flavour

PHASE = "check accuracy"
"""One step per bucket."""

MAX_TOLD = 3

_MENDS = {
    "fp16": 'mode = "bf16" has the range of FP32, "as-is" its precision too',
    "bf16": 'mode = "fp16" has three more bits of precision, "as-is" all of FP32\'s',
    "int8": "calibrate with more of the data that the model will see, or leave its first and last layers unquantised",
    "fp8": "calibrate with more of the data that the model will see, or leave its first and last layers unquantised",
}


def accuracy_check(
    request: BuildRequest, *, flavour: Flavour, cuda: Cuda, cpu_threads: int, on_event: OnEvent
) -> AccuracyCheck:
    """The check that `build_plan` asks before a plan gets its name; it runs on the thread that builds.

    It opens the plan as the server would, on the device that the plan was built for, warms every bucket, which
    captures its graph, and compares a full batch of each with ONNX Runtime, which runs the model row by row.

    Args:
        request: what was built.
        flavour: the TensorRT that runs the plan.
        cuda: the process's CUDA.
        cpu_threads: threads of ONNX Runtime.
        on_event: hears of a phase with one step per bucket, and of what could not be compared.
    """

    def check(plan_path: Path) -> AccuracyReport:
        folder = find(request.model_folder.parent, request.model_folder.name)
        version = folder.version(request.version)
        card = load_card(folder.path)
        if request.options.device is not None:
            card = replace(card, lanes=replace(card.lanes, device=request.options.device))
        assert version.onnx is not None, "the plan was built from it"
        backend = TensorRTBackend.open(card, version=version.version, plan_path=plan_path, flavour=flavour, cuda=cuda)
        try:
            return _verify(backend, version.onnx, cpu_threads, on_event)
        finally:
            backend.close()

    return check


def refusal(card: ModelCard, agreements: Sequence[Agreement]) -> str | None:
    """Why a plan is not accurate enough, the worst bucket first, and what to try; None if it is."""
    bad = [(each, problem) for each in agreements if (problem := each.problem(card.precision.min_cosine)) is not None]
    if not bad:
        return None
    bad.sort(key=lambda pair: goodness(pair[0].cosine))
    told = "; ".join(problem for _, problem in bad[:MAX_TOLD])
    rest = f"; and {len(bad) - MAX_TOLD} more buckets" if len(bad) > MAX_TOLD else ""
    mend = _MENDS.get(card.precision.mode)
    return (
        f"model '{card.name}': the plan is not accurate enough: {told}{rest}. "
        f"{'Try another precision: ' + mend + '; ' if mend else ''}"
        "lower min_cosine only where the task's own measure of quality allows it"
    )


def _verify(backend: TensorRTBackend, onnx_path: Path, cpu_threads: int, on_event: OnEvent) -> AccuracyReport:
    """Raises ModelLoadFailed where a bucket does not run, or not accurately."""
    card = backend.spec.card
    min_cosine = card.precision.min_cosine
    try:
        reference = open_reference(onnx_path, backend.spec, cpu_threads=cpu_threads, fixed_inputs=backend.fixed_inputs)
    except ModelLoadFailed as error:
        _tell_skipped(on_event, error.message)
        return AccuracyReport(min_cosine=min_cosine, skipped=error.message)
    agreements, skipped = _compare_all(backend, RememberingReference(reference), on_event)
    problem = refusal(card, agreements)
    if problem is not None:
        raise ModelLoadFailed(problem)
    if skipped:
        _tell_skipped(on_event, skipped)
    profiles = {shapes.bucket: shapes.profile for shapes in backend.bucket_shapes}
    return AccuracyReport(
        min_cosine=min_cosine,
        buckets=tuple(
            BucketAccuracy(
                bucket=each.bucket.label,
                profile=profiles[each.bucket],
                output=each.output,
                cosine=each.cosine,
                largest_difference=each.largest_difference,
            )
            for each in agreements
        ),
        skipped=skipped,
    )


def _compare_all(
    backend: TensorRTBackend, reference: RememberingReference, on_event: OnEvent
) -> tuple[list[Agreement], str]:
    """The agreements of all buckets that the reference can run, and why it cannot run the last of the others."""
    agreements: list[Agreement] = []
    skipped = ""
    buckets = [shapes.bucket for shapes in backend.bucket_shapes]
    on_event(PhaseStarted(PHASE, None, len(buckets)))
    lane = backend.create_lane(0)
    try:
        for step, bucket in enumerate(buckets):
            lane.warm_up(bucket)
            try:
                agreements.append(compare(lane, reference, backend.spec, bucket))
            except ReferenceFailed as error:
                skipped = f"bucket {bucket.label}: {error.message}"
            on_event(PhaseStep(PHASE, step))
    except OtherModel as error:
        raise ModelLoadFailed(error.message) from error
    except ExecutionFailed as error:
        raise ModelLoadFailed(f"the plan does not run in bucket {bucket.label}: {error.message}") from error
    finally:
        lane.close()
        on_event(PhaseFinished(PHASE))
    return agreements, skipped


def _tell_skipped(on_event: OnEvent, reason: str) -> None:
    on_event(LogLine("warning", f"the plan's accuracy was not checked: {reason}"))
