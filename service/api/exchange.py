"""One inference request over HTTP, from its headers to its answer: what `infer` and `predict` have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple
from urllib.parse import parse_qsl

from service.api.watchdog import Watched
from service.batching.pending import Submitted
from service.batching.submitter import Submitter
from service.errors import ClientGone, InvalidInput
from service.requests import InferenceRequest, Stamps
from service.tensors import HostArray

MAX_QUERY_FIELDS = 32


class Reply(NamedTuple):
    """An answer, ready to be sent.

    Attributes:
        chunks: the body's parts.
        headers: names in lower case and values; neither length, encoding nor timing.
        rows: rows that were inferred for it.
    """

    chunks: tuple[bytes | memoryview, ...]
    headers: list[tuple[bytes, bytes]]
    rows: int


@dataclass(slots=True)
class Exchange:
    """A request in progress. Belongs to its task on the event loop.

    Attributes:
        headers: the request's, names in lower case; the last of repeated ones.
        query_string: raw, without the question mark.
        stamps: its moments so far.
        watched: its entry with the watchdog.
        body: the whole body, decompressed, once it is read.
        is_json: whether its tensors came as JSON.
        encode_ns: what encoding its answer took.
    """

    headers: Mapping[bytes, bytes]
    query_string: bytes
    stamps: Stamps
    watched: Watched
    body: bytes | bytearray | memoryview = field(default=b"")
    is_json: bool = False
    encode_ns: int = 0

    def query(self) -> dict[str, str]:
        """The query's fields.

        Raises:
            InvalidInput: a field is repeated, malformed, or there are too many.
        """
        try:
            pairs = parse_qsl(
                self.query_string.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=bool(self.query_string),
                max_num_fields=MAX_QUERY_FIELDS,
                errors="strict",
            )
        except ValueError as error:
            raise InvalidInput(
                f"the query string cannot be read ({error}); write it as name=value&name=value"
            ) from None
        fields = dict(pairs)
        if len(fields) != len(pairs):
            raise InvalidInput("the query string repeats a name; give each option once")
        return fields

    async def run(self, batcher: Submitter, request: InferenceRequest) -> tuple[HostArray, ...]:
        """Submits a request and waits for its outputs; a client that leaves meanwhile takes it out of the queue.

        Raises:
            Overloaded, NotReady, ShuttingDown, DeadlineExceeded, ExecutionFailed, ClientGone: as `Submitter.submit`.
        """
        if self.watched.is_gone:
            raise ClientGone("the client closed its connection while its request was prepared")
        pending = batcher.submit(request)
        self.watched.on_gone = partial(batcher.cancel, pending)
        try:
            return await pending.future
        except asyncio.CancelledError:
            batcher.cancel(pending)
            raise

    async def run_all(
        self, submissions: Sequence[tuple[Submitter, InferenceRequest]]
    ) -> tuple[tuple[HostArray, ...], ...]:
        """Submits requests at once and waits for the outputs of all, in their order; if one fails, none is waited for.

        Raises:
            Overloaded, NotReady, ShuttingDown, DeadlineExceeded, ExecutionFailed, ClientGone: as `Submitter.submit`.
        """
        if self.watched.is_gone:
            raise ClientGone("the client closed its connection while its request was prepared")
        queued: list[tuple[Submitter, Submitted]] = []
        self.watched.on_gone = partial(_cancel_all, queued)
        try:
            for batcher, request in submissions:
                queued.append((batcher, batcher.submit(request)))
            return tuple(await asyncio.gather(*(pending.future for _, pending in queued)))
        except BaseException:
            for _, pending in queued:
                pending.future.cancel()  # nobody reads what becomes of it
            _cancel_all(queued)
            raise


def _cancel_all(queued: Sequence[tuple[Submitter, Submitted]]) -> None:
    for batcher, pending in queued:
        batcher.cancel(pending)
