"""The engine's side of one front end: its requests into the queues of the models, their answers back.

A request becomes arrays on the front end's region without a copy, and joins the same queues as those of all others.
Its outputs are copied into the room that it brought, and travel inline where that is none. However a session ends, its
waiting requests leave the queues, and it counts as ended only when no lane runs anything of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from service.batching.batcher import Batcher
from service.batching.pending import Submitted
from service.buckets import Form
from service.errors import ExecutionFailed, ServiceError, ShuttingDown
from service.models import ModelSpec
from service.repository.served import ServedModel
from service.requests import InferenceRequest, Stamps
from service.telemetry.recorder import Recorder
from service.tensors import HostArray
from service.transport.channel import Channel, Forwarding
from service.transport.counting import Counting
from service.transport.descriptors import (
    Done,
    Moments,
    Submit,
    pack_done,
    pack_failed,
    unpack_cancel,
    unpack_submit,
)
from service.transport.objects import Hello, Known, Records, unpack_object
from service.transport.placing import input_specs, output_specs, place, take_up
from service.transport.publish import Publisher
from service.transport.wire import Frame, Kind, Malformed, pack_frame

_log = logging.getLogger(__name__)

_FORMS = {form.value: form for form in Form}


class Regions(Protocol):
    """Lets one session at a time use each region. On the event loop."""

    async def enter(self, session: Session, index: int) -> memoryview:
        """The region of a front end, once no earlier session of it has anything on a lane.

        Raises:
            Malformed: there is no such region.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTools:
    """What the sessions of one engine have in common.

    Attributes:
        publisher: knows the models.
        recorder: takes what front ends count.
        regions: gives each its region.
        make_forwarding: makes the engine's side of forwarded ASGI calls for a channel.
        clock: monotonic nanoseconds.
    """

    publisher: Publisher
    recorder: Recorder
    regions: Regions
    make_forwarding: Callable[[Channel], Forwarding]
    clock: Callable[[], int]


class Session:
    """One front end, from its connection on; a `Receiver` and a `Follower`. On the event loop.

    Args:
        tools: what it needs.
    """

    def __init__(self, tools: SessionTools) -> None:
        self._tools = tools
        self._counting = Counting(tools.publisher, tools.recorder)
        self._channel: Channel | None = None
        self._forwarding: Forwarding | None = None
        self._entering: asyncio.Task[None] | None = None
        self._region: memoryview | None = None
        self._pending: dict[int, tuple[Batcher, Submitted]] = {}
        self._known = 0
        self._asked: deque[asyncio.Future[None]] = deque()
        self._is_lost = False
        self.ended = asyncio.Event()

    @property
    def known(self) -> int:
        """See `Follower`."""
        return self._known

    def publish(self, frame: bytes) -> None:
        """See `Follower`."""
        if self._channel is not None:
            self._channel.send(frame)

    def count(self) -> asyncio.Future[None]:
        """Asks the front end for what it has counted; done when that is added, or the front end is gone."""
        asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._region is None or self._channel is None or self._is_lost:
            asked.set_result(None)
        else:
            self._asked.append(asked)
            self._channel.send(pack_frame(Kind.COUNT))
        return asked

    def _counted(self) -> None:
        if not self._asked:
            raise Malformed("a front end has counted, and was not asked to")
        _settle(self._asked.popleft())

    def opened(self, channel: Channel) -> None:
        """See `Receiver`."""
        self._channel = channel

    def received(self, frames: Sequence[Frame]) -> None:
        """See `Receiver`."""
        for kind, payload in frames:
            if self._region is None:
                self._greet(kind, payload)
            elif kind is Kind.SUBMIT:
                self._submit(payload, self._region)
            elif kind is Kind.CANCEL:
                self._cancel(unpack_cancel(payload))
            elif kind is Kind.FORWARD and self._forwarding is not None:
                self._forwarding.received(payload)
            elif kind is Kind.RECORDS:
                self._counting.count(unpack_object(payload, Records))
            elif kind is Kind.COUNTED:
                self._counted()
            elif kind is Kind.KNOWN:
                self._known = unpack_object(payload, Known).serial
                self._tools.publisher.heard()
            else:
                raise Malformed(f"{kind.name} came from a front end that was welcomed")

    def lost(self, error: Exception | None) -> None:
        """See `Receiver`."""
        self._is_lost = True
        if self._entering is not None:
            self._entering.cancel()
        if self._forwarding is not None:
            self._forwarding.lost()
        self._tools.publisher.leave(self)
        self._counting.end(self._tools.clock())
        while self._asked:
            _settle(self._asked.popleft())
        for batcher, item in tuple(self._pending.values()):
            batcher.cancel(item)
        self._end_if_done()

    def _greet(self, kind: Kind, payload: memoryview) -> None:
        if kind is not Kind.HELLO or self._entering is not None:
            raise Malformed(f"{kind.name} came from a front end that was not welcomed")
        hello = unpack_object(payload, Hello)
        self._entering = asyncio.get_running_loop().create_task(self._enter(hello))

    async def _enter(self, hello: Hello) -> None:
        channel = self._channel
        assert channel is not None, "frames come from an open channel"
        try:
            self._region = await self._tools.regions.enter(self, hello.region)
            self._counting.begin(hello)
            self._forwarding = self._tools.make_forwarding(channel)
            channel.send(pack_frame(Kind.WELCOME))
            self._tools.publisher.join(self)
        except Exception:
            _log.exception("a front end that asked for region %d was not let in", hello.region)
            channel.close()

    def _submit(self, payload: memoryview, region: memoryview) -> None:
        submit, inline = unpack_submit(payload)
        if submit.number in self._pending:
            raise Malformed(f"request {submit.number} came twice")
        if not 0 <= submit.result_offset <= submit.result_offset + submit.result_bytes <= len(region):
            raise Malformed(f"{submit.result_bytes} bytes at {submit.result_offset} lie outside the region")
        model = self._tools.publisher.find(submit.model)
        if not isinstance(model, ServedModel):
            self._send(pack_failed(submit.number, ShuttingDown("the model is being replaced; send the request again")))
            return
        request = _to_request(submit, inline, region.toreadonly(), model.spec)
        try:
            item = model.batcher.submit(request)
        except ServiceError as error:
            self._send(pack_failed(submit.number, error))
            return
        self._pending[submit.number] = model.batcher, item
        item.future.add_done_callback(partial(self._answer, submit, request, model))

    def _cancel(self, number: int) -> None:
        pending = self._pending.get(number)
        if pending is not None:  # or its answer is on its way
            batcher, item = pending
            batcher.cancel(item)

    def _answer(
        self,
        submit: Submit,
        request: InferenceRequest,
        model: ServedModel,
        future: asyncio.Future[tuple[HostArray, ...]],
    ) -> None:
        del self._pending[submit.number]
        error = future.exception()
        if self._is_lost:
            self._end_if_done()
        elif error is None:
            self._send(self._done(submit, request.stamps, model, future.result()))
        else:
            assert isinstance(error, ServiceError), "a batcher ends requests with these alone"
            self._send(pack_failed(submit.number, error))

    def _done(self, submit: Submit, stamps: Stamps, model: ServedModel, outputs: Sequence[HostArray]) -> bytes:
        assert self._region is not None, "requests come after the welcome"
        tensors = place(outputs, self._region, submit.result_offset, submit.result_bytes)
        backlog_ns = 0.0
        if self._tools.publisher.is_member(submit.model):
            backlog_ns = model.batcher.backlog_ns(model.spec.card.batching.default_priority)
        moments = Moments(
            stamps.formed,
            stamps.dispatched,
            stamps.started,
            stamps.uploaded,
            stamps.copied_in,
            stamps.computed,
            stamps.copied_out,
        )
        try:
            return pack_done(
                Done(submit.number, moments, stamps.completed, round(backlog_ns), tensors.placed), tensors.inline
            )
        except ValueError as error:
            return pack_failed(submit.number, ExecutionFailed(f"the outputs are too large: {error}"))

    def _send(self, frame: bytes) -> None:
        assert self._channel is not None, "requests come over an open channel"
        self._channel.send(frame)

    def _end_if_done(self) -> None:
        if not self._pending:
            self.ended.set()


def _to_request(submit: Submit, inline: memoryview, region: memoryview, spec: ModelSpec) -> InferenceRequest:
    """The request as the queue takes it, its inputs views on the region.

    Raises:
        Malformed: it does not fit the model; front ends validate, so it is none of ours.
    """
    form = _FORMS.get(submit.form)
    if form is None or (form is Form.MEDIA and spec.media is None):
        raise Malformed(f"request {submit.number} is of form {submit.form}, which model '{spec.name}' has not")
    known = range(len(output_specs(spec, form)))
    if submit.rows < 1 or len(submit.dims) != len(spec.buckets.dim_names) or not set(submit.outputs) <= set(known):
        raise Malformed(f"request {submit.number} has other rows, dims or outputs than model '{spec.name}'")
    stamps = Stamps(submit.received)
    stamps.read, stamps.parsed, stamps.prepared = submit.read, submit.parsed, submit.prepared
    return InferenceRequest(
        inputs=take_up(submit.inputs, inline, input_specs(spec, form), region),
        rows=submit.rows,
        dims=submit.dims,
        outputs=submit.outputs,
        priority=submit.priority,
        deadline_ns=submit.deadline_ns,
        nbytes=submit.nbytes,
        stamps=stamps,
        form=form,
    )


def _settle(asked: asyncio.Future[None]) -> None:
    if not asked.done():  # whoever asked may have waited long enough
        asked.set_result(None)
