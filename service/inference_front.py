"""What answers inference over HTTP: the same in a server of one process and in a front end of its own.

Only where the models are, and where large bodies lie, differs: that is asked of whoever makes it.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.types import ASGIApp

from service.api.body import BodyMemory, ByteBudget
from service.api.endpoint import Inference, InferenceEndpoint
from service.api.errors import ErrorBoundary
from service.api.infer import Infer
from service.api.predict import MediaThreads, Predict
from service.api.shared_tensors import SharedTensors
from service.api.stream import StreamEndpoint
from service.api.stream_header import StreamLimits
from service.api.stream_session import Streams
from service.api.watchdog import Watchdog
from service.repository.catalogue import Models
from service.settings import Settings
from service.shared_regions.registered import Regions
from service.telemetry.server_recorder import ServerRecorder

MAX_PREPARING_PER_THREAD = 128


@dataclass(frozen=True, slots=True)
class InferenceFront:
    """The routes of inference, and the threads that they need; `close` ends those.

    Attributes:
        inference: what its requests need.
        streams: what its streams need.
        threads: where tasks compute.
        codec_pool: where bodies are compressed and decompressed.
    """

    inference: Inference
    streams: Streams
    threads: MediaThreads
    codec_pool: ThreadPoolExecutor

    @classmethod
    def create(
        cls,
        settings: Settings,
        models: Models,
        recorder: ServerRecorder,
        *,
        budget: ByteBudget,
        memory: BodyMemory,
        regions: Regions | None,
    ) -> InferenceFront:
        """Makes it; threads begin when they are needed.

        Args:
            settings: of the server.
            models: where requests find theirs.
            recorder: counts what belongs to no model.
            budget: bytes that all requests of this process may hold.
            memory: where large bodies are read into.
            regions: of clients' shared memory; None where that is not offered.
        """
        count, clock = settings.resolved_cpu_threads, time.monotonic_ns
        threads = MediaThreads(
            ThreadPoolExecutor(count, thread_name_prefix="media"),
            ThreadPoolExecutor(count, thread_name_prefix="answers"),
            max_beginning=count * MAX_PREPARING_PER_THREAD,
        )
        codec_pool = ThreadPoolExecutor(count, thread_name_prefix="codec")
        predict = Predict(threads, clock)
        shared = None
        if regions is not None:
            shared = SharedTensors(regions, budget=budget, memory=memory, limit_bytes=settings.max_body_bytes)
        inference = Inference(
            registry=models,
            recorder=recorder,
            handlers={"infer": Infer(clock, shared), "predict": predict},
            budget=budget,
            memory=memory,
            codec_pool=codec_pool,
            watchdog=Watchdog(body_timeout_s=settings.body_timeout_s, clock=clock),
            max_body_bytes=settings.max_body_bytes,
            overload_status=settings.overload_status,
            server_timing_enabled=settings.server_timing_enabled,
            clock=clock,
        )
        return cls(inference, _streams(settings, inference, predict), threads, codec_pool)

    def before(self, inner: ASGIApp) -> ASGIApp:
        """Answers inference and streams, in front of an application that answers everything else."""
        return ErrorBoundary(InferenceEndpoint(StreamEndpoint(inner, self.streams), self.inference))

    def close(self) -> None:
        """Ends the threads after what they have begun; blocking."""
        self.threads.beginning.shutdown()
        self.threads.finishing.shutdown()
        self.codec_pool.shutdown()


def _streams(settings: Settings, inference: Inference, predict: Predict) -> Streams:
    return Streams(
        registry=inference.registry,
        recorder=inference.recorder,
        predict=predict,
        budget=inference.budget,
        limits=StreamLimits(
            max_in_flight=settings.max_stream_in_flight,
            max_frame_bytes=settings.max_body_bytes,
            max_image_pixels=settings.max_image_pixels,
        ),
        header_timeout_s=settings.body_timeout_s,
        overload_status=settings.overload_status,
        clock=inference.clock,
    )
