"""`POST /v2/models/M/predict`: media in, meaning out. Media are decoded, and outputs made sense of, off the event loop.

A task says in steps what its models shall run (`service/pipeline/steps.py`); this module drives it. What has begun goes
first: the later parts of a request run on threads of their own, where they do not wait behind the decoding of others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import orjson

from service.api.exchange import Exchange, Reply
from service.api.step_portions import portions
from service.api.step_stamps import add_step, begin_steps, call_timings
from service.buckets import Form
from service.errors import ClientGone, DeadlineExceeded, InvalidInput, Overloaded, ServiceError
from service.pipeline.steps import Call, Outputs, Step, Steps
from service.pipeline.task import Task
from service.repository.composed import AnyModel, ComposedModel
from service.repository.forecast import Progress
from service.repository.plain import PlainModel
from service.requests import Clock, InferenceRequest, RequestFacts, Stamps, waits
from service.telemetry.activity import Activity
from service.units import NS_PER_MS

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MediaThreads:
    """Where tasks compute.

    Attributes:
        beginning: reads and decodes what clients send.
        finishing: goes on with requests whose model has run.
        max_beginning: requests that may be in `beginning` or wait for it; above it they are refused at once.
    """

    beginning: Executor
    finishing: Executor
    max_beginning: int


@dataclass(frozen=True, slots=True, eq=False)
class _Submission:
    """A call of a step on its way: which model runs it, and as which request."""

    model: PlainModel
    request: InferenceRequest


class Predict:
    """Answers `predict`. One for the server; on the event loop.

    Args:
        threads: where tasks compute.
        clock: monotonic nanoseconds.
    """

    def __init__(self, threads: MediaThreads, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._beginning = 0

    async def answer(self, served: AnyModel, exchange: Exchange) -> Reply:
        """Prepares, runs and renders one request.

        Raises:
            ServiceError: whatever is wrong with it, or happened to it.
        """
        _task(served)  # a model without one says so, whatever was asked
        options = exchange.query()
        content_type = exchange.headers.get(b"content-type", b"").decode("latin-1")
        return await self.run(
            served, exchange, options, lambda task: task.steps(bytes(exchange.body), content_type, options)
        )

    async def run(
        self, served: AnyModel, exchange: Exchange, options: Mapping[str, str], begin: Callable[[Task], Steps]
    ) -> Reply:
        """As `answer`, of media that came in another way than as a body.

        Args:
            served: the model.
            exchange: the request; neither its headers nor its body are looked at.
            options: of the task.
            begin: the task's work on the media, which begins only when its first step is asked for.

        Raises:
            ServiceError: as `answer`.
        """
        task = _task(served)
        task.check_options(options)
        exchange.stamps.parsed = self._clock()
        steps = begin(task)
        if isinstance(served, PlainModel):
            return await self._drive(served, steps, exchange)
        with served.admitted(self._clock, _deadline_ns(served, exchange.stamps.read)) as progress:
            return await self._drive(served, steps, exchange, progress)

    async def _drive(
        self, served: AnyModel, steps: Steps, exchange: Exchange, progress: Progress | None = None
    ) -> Reply:
        stamps = exchange.stamps
        result = await self._begin(served, steps, exchange)
        begin_steps(stamps, self._clock())
        rows = sum(call.rows for call in result.calls) if isinstance(result, Step) else 0
        while isinstance(result, Step):
            outputs = await self._run(served, result, exchange, progress)
            if result.is_rest_quick:
                result = _advance(steps, outputs)
            else:
                rest = partial(_advance, steps, outputs)
                result = await self._on_thread(self._threads.finishing, rest, exchange, served.activity)
        served.activity.pool_rows += rows
        return Reply((result,), [(b"content-type", b"application/json")], rows)

    async def _begin(self, served: AnyModel, steps: Steps, exchange: Exchange) -> Step | bytes:
        limit = self._threads.max_beginning
        if self._beginning >= limit:
            raise Overloaded(
                f"{self._beginning} media requests are being decoded or wait for it, {limit} may; "
                "retry later or send less at once",
                retry_after_s=1.0,
            )
        self._beginning += 1
        try:
            work = partial(self._begin_in_time, served, steps, exchange.stamps.read)
            return await self._on_thread(self._threads.beginning, work, exchange, served.activity)
        finally:
            self._beginning -= 1

    def _begin_in_time(self, served: AnyModel, steps: Steps, read_ns: int) -> Step | bytes:
        """On a thread, which others may have kept busy for longer than this request is given."""
        now_ns = self._clock()
        if now_ns > _deadline_ns(served, read_ns):
            raise DeadlineExceeded(
                f"Request timeout expired: it waited {(now_ns - read_ns) / NS_PER_MS:.0f} ms to be decoded for model "
                f"'{served.spec.name}' and was not; allow a longer timeout or send less at once"
            )
        return _advance(steps, None)

    async def _on_thread(
        self, executor: Executor, work: Callable[[], _T], exchange: Exchange, activity: Activity
    ) -> _T:
        if exchange.watched.is_gone:
            raise ClientGone("the client closed its connection before its request was answered")
        job = executor.submit(_timed, work)
        exchange.watched.on_gone = job.cancel
        try:
            result, cpu_ns = await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if exchange.watched.is_gone:
                raise ClientGone("the client closed its connection before its request was answered") from None
            raise
        activity.pool_ns += cpu_ns
        return result

    async def _run(
        self, served: AnyModel, step: Step, exchange: Exchange, progress: Progress | None
    ) -> tuple[Outputs, ...]:
        """Runs the calls of a step: at once, as far as the queues of their models take them."""
        outputs: list[Outputs] = []
        for calls in portions(step.calls, lambda member: _model(served, member).spec.card.batching):
            outputs += await self._run_calls(served, calls, exchange, progress)
        return tuple(outputs)

    async def _run_calls(
        self, served: AnyModel, calls: Sequence[Call], exchange: Exchange, progress: Progress | None
    ) -> tuple[Outputs, ...]:
        """Runs calls at once; those of a composed model's members are recorded as requests to them too."""
        handed_ns = self._clock()
        until_ns = _deadline_ns(served, exchange.stamps.read)
        submissions = [_to_submission(served, call, exchange.stamps, handed_ns, until_ns) for call in calls]
        is_composed = isinstance(served, ComposedModel)
        if progress is not None and isinstance(served, ComposedModel):
            for call, each in zip(calls, submissions, strict=True):
                served.forecast.bring(progress, call.member, each.model.batcher.lane_time_ns(each.request))
        try:
            outputs = await exchange.run_all([(each.model.batcher, each.request) for each in submissions])
        except ServiceError as error:
            if is_composed:
                for recorder in {id(each.model): each.model.recorder for each in submissions}.values():
                    recorder.record_failure(error.reason)
            raise
        if is_composed:
            for each in submissions:
                stamps = each.request.stamps
                facts = RequestFacts(*waits(stamps), body_bytes=each.request.nbytes)
                each.model.recorder.record_request(call_timings(stamps), each.request.rows, facts)
                each.model.activity.in_flight.add_stay(stamps.prepared, stamps.completed)
        if progress is not None:
            progress.with_members_ns += self._clock() - handed_ns
        add_step(exchange.stamps, [each.request.stamps for each in submissions])
        return outputs


def _timed(work: Callable[[], _T]) -> tuple[_T, int]:
    """The result of `work` and the CPU time of its thread that it took, in nanoseconds."""
    began_ns = time.thread_time_ns()
    return work(), time.thread_time_ns() - began_ns


def _advance(steps: Steps, outputs: tuple[Outputs, ...] | None) -> Step | bytes:
    """The next step, or the answer as JSON."""
    try:
        return next(steps) if outputs is None else steps.send(outputs)
    except StopIteration as done:
        return orjson.dumps(done.value, option=orjson.OPT_SERIALIZE_NUMPY)


def _task(served: AnyModel) -> Task:
    if served.task is None:
        raise InvalidInput(
            f"model '{served.spec.name}' has no task, so it takes raw tensors only; POST them to "
            f"/v2/models/{served.spec.name}/infer, or set 'task' in its model.toml"
        )
    return served.task


def _deadline_ns(served: AnyModel, read_ns: int) -> int:
    return read_ns + served.spec.card.batching.default_timeout_ns


def _model(served: AnyModel, member: str) -> PlainModel:
    return served if isinstance(served, PlainModel) else served.members[member]


def _to_submission(served: AnyModel, call: Call, stamps: Stamps, handed_ns: int, until_ns: int) -> _Submission:
    model = _model(served, call.member)
    own = Stamps(stamps.received)
    own.read, own.parsed = stamps.read, stamps.parsed
    own.prepared = handed_ns
    wanted = model.spec.outputs
    if call.form is Form.MEDIA:
        assert model.spec.media is not None, "a task uses the forms that its model has"
        wanted = model.spec.media.outputs
    request = InferenceRequest(
        inputs=call.inputs,
        rows=call.rows,
        dims=call.dims,
        outputs=tuple(range(len(wanted))) if call.outputs is None else call.outputs,
        priority=model.spec.card.batching.default_priority,
        deadline_ns=until_ns,
        nbytes=call.nbytes,
        stamps=own,
        form=call.form,
    )
    return _Submission(model, request)
