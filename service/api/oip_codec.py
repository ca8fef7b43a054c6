"""The Open Inference Protocol's inference request and response for one model: bytes in, arrays out, and back.

The one module of the codecs that the routes need. Everything here is synchronous, touches no socket, and raises
`ServiceError` only.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.api.oip_header import parse_header_length
from service.api.oip_outputs import RequestedOutput
from service.api.oip_parse import BegunInfer, InferParser, ParsedInfer
from service.api.oip_render import RenderedInfer, render_infer
from service.models import ModelSpec
from service.tensors import HostArray

__all__ = ["BegunInfer", "InferCodec", "ParsedInfer", "RenderedInfer", "RequestedOutput", "parse_header_length"]


class InferCodec:
    """Parses requests and renders responses of one model version.

    Made once, when the model is loaded; immutable afterwards and shared by all threads.
    """

    __slots__ = ("_parser", "_spec")

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._parser = InferParser(spec)

    def begin(self, body: bytes | bytearray | memoryview, header_length: int | None) -> BegunInfer:
        """Reads a request's header; nothing of its data is looked at before its whole header is found valid.

        Args:
            body: the whole body, decompressed, as bytes; must not change as long as the result lives.
            header_length: bytes of the JSON header; None if the whole body is JSON, 0 for a raw binary request
                (the body is the only input's one row, and every output comes back binary).

        Raises:
            InvalidInput: the request contradicts the protocol or the model.
            Unsupported: it asks for sequences.
        """
        return self._parser.begin(body, header_length)

    def finish(self, begun: BegunInfer, host_shared: Sequence[memoryview] = ()) -> ParsedInfer:
        """Converts the data of a request.

        Args:
            begun: the request.
            host_shared: a copy of the data of each input that lies in shared memory, in the order of the request.

        Raises:
            InvalidInput: the data contradicts the model.
        """
        return self._parser.finish(begun, host_shared)

    def parse(self, body: bytes | bytearray | memoryview, header_length: int | None) -> ParsedInfer:
        """Parses a request that has nothing in shared memory; see `begin` and `finish`.

        Raises:
            InvalidInput, PayloadTooLarge, Unsupported: as those, and where it has.
        """
        return self._parser.parse(body, header_length)

    def render(self, parsed: ParsedInfer, arrays: Sequence[HostArray]) -> RenderedInfer:
        """Encodes the outputs of one request.

        Args:
            parsed: the request.
            arrays: one per entry of `parsed.outputs`, [rows, ...], C-contiguous, padding removed.

        Raises:
            InvalidInput: an output was requested as JSON but holds values that JSON cannot express.
        """
        return render_infer(self._spec, parsed, arrays)
