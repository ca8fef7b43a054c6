"""`POST /v2/models/M/infer`: the Open Inference Protocol's inference, JSON and binary."""

from __future__ import annotations

from service.api.exchange import Exchange, Reply
from service.api.oip_codec import BegunInfer, InferCodec, ParsedInfer, RenderedInfer, parse_header_length
from service.api.oip_places import not_shared
from service.api.shared_tensors import SharedTensors
from service.errors import InvalidInput
from service.models import ModelSpec
from service.repository.composed import AnyModel, ComposedModel
from service.repository.plain import PlainModel
from service.requests import Clock, InferenceRequest, Stamps
from service.tensors import DType, first_not_utf8


class Infer:
    """Answers `infer`. One for the server; on the event loop.

    Args:
        clock: monotonic nanoseconds.
        shared: copies tensors from and to clients' shared memory; None where that is not offered.
    """

    def __init__(self, clock: Clock, shared: SharedTensors | None = None) -> None:
        self._clock = clock
        self._shared = shared
        self._codecs: dict[str, tuple[ModelSpec, InferCodec]] = {}

    async def answer(self, served: AnyModel, exchange: Exchange) -> Reply:
        """Parses, runs and renders one request.

        Raises:
            ServiceError: whatever is wrong with it, or happened to it.
        """
        if isinstance(served, ComposedModel):
            raise InvalidInput(
                f"model '{served.spec.name}' is composed of {', '.join(served.spec.card.members.values())} and has no "
                f"tensors of its own; POST to /v2/models/{served.spec.name}/predict, or tensors to those"
            )
        codec = self._codec(served)
        header_length = parse_header_length(exchange.headers.get(b"inference-header-content-length"))
        begun = codec.begin(exchange.body, header_length)
        if begun.is_shared:
            return await self._answer_shared(served, exchange, codec, begun)
        exchange.is_json = header_length is None
        parsed = codec.finish(begun)
        return _reply(parsed, await self._run(served, exchange, codec, parsed))

    async def _answer_shared(
        self, served: PlainModel, exchange: Exchange, codec: InferCodec, begun: BegunInfer
    ) -> Reply:
        """Answers a request of which something lies in shared memory, or is to go there."""
        if self._shared is None:
            raise not_shared()
        visit = self._shared.visit(begun)
        try:
            parsed = codec.finish(begun, await visit.read())
            rendered = await self._run(served, exchange, codec, parsed)
            await visit.write(rendered.shared)
            return _reply(parsed, rendered)
        finally:
            visit.close()

    async def _run(
        self, served: PlainModel, exchange: Exchange, codec: InferCodec, parsed: ParsedInfer
    ) -> RenderedInfer:
        check_text(served.spec, parsed)
        stamps = exchange.stamps
        stamps.parsed = stamps.prepared = self._clock()
        outputs = await exchange.run(served.batcher, to_request(served, parsed, stamps))
        began_ns = self._clock()
        rendered = codec.render(parsed, outputs)
        exchange.encode_ns = self._clock() - began_ns
        return rendered

    def _codec(self, served: PlainModel) -> InferCodec:
        """A codec serves one load of a model; it is told by its specification, so that no unloaded one is kept."""
        spec = served.spec
        known = self._codecs.get(spec.name)
        if known is None or known[0] is not spec:
            known = self._codecs[spec.name] = (spec, InferCodec(spec))
        return known[1]


def _reply(parsed: ParsedInfer, rendered: RenderedInfer) -> Reply:
    headers = [(b"content-type", rendered.content_type)]
    if rendered.header_length is not None:
        headers.append((b"inference-header-content-length", b"%d" % rendered.header_length))
    return Reply(rendered.chunks, headers, parsed.rows)


def check_text(spec: ModelSpec, parsed: ParsedInfer) -> None:
    """Refuses BYTES that are not UTF-8, before they join a batch: ONNX Runtime takes no other text.

    Raises:
        InvalidInput: names the input and the element.
    """
    for tensor, host_input in zip(spec.inputs, parsed.inputs, strict=True):
        if tensor.dtype is DType.BYTES and (index := first_not_utf8(host_input)) is not None:
            raise InvalidInput(
                f"element {index} of input '{tensor.name}' for model '{spec.name}' is not UTF-8, and the model takes "
                "text alone; encode it as UTF-8"
            )


def to_request(served: PlainModel, parsed: ParsedInfer, stamps: Stamps) -> InferenceRequest:
    """The request for the queue: priority and deadline as the model's card has them by default.

    As in Triton, a request's own timeout can only shorten the model's default. It begins when the body is here: how
    long the client took to send it says nothing of the server.
    """
    batching = served.spec.card.batching
    timeout_ns = batching.default_timeout_ns
    if parsed.timeout_ns is not None:
        timeout_ns = min(timeout_ns, parsed.timeout_ns)
    return InferenceRequest(
        inputs=parsed.inputs,
        rows=parsed.rows,
        dims=parsed.dims,
        outputs=tuple(output.index for output in parsed.outputs),
        priority=parsed.priority or batching.default_priority,
        deadline_ns=stamps.read + timeout_ns,
        nbytes=parsed.nbytes,
        stamps=stamps,
    )
