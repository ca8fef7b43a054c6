"""Locust users that speak the Open Inference Protocol, with binary and with JSON tensors.

    locust -f loadtest/locustfile.py --headless -u 16 -r 16 -t 30s --host http://127.0.0.1:8000 --model orientation

Each user draws a request of one of the configured shapes at random and fails it unless the answer has the model's
outputs. For precise latencies take `python -m loadtest.bench`: a locust user is a closed loop.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
import urllib.request
from argparse import ArgumentParser
from typing import Any, cast

from locust import FastHttpUser, constant_throughput, events, task
from locust.exception import StopUser

from loadtest.errors import LoadTestError
from loadtest.metadata import ModelMetadata, answer_fault, model_path, parse_metadata
from loadtest.payloads import Payload, PayloadPlan, Wire, build_payloads, parse_dims, parse_sizes

_LOG = logging.getLogger("loadtest.locustfile")


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options of these users to locust's own."""
    group = parser.add_argument_group("inference")
    group.add_argument("--model", default="orientation", help="Name of the model.")
    group.add_argument("--rows", default="1", help="Rows per request; several, such as 1,4, are mixed.")
    group.add_argument("--dim", action="append", default=[], help="Sizes of a dynamic dimension: width=160,320.")
    group.add_argument("--seed", type=int, default=0, help="Of payloads.")
    group.add_argument(
        "--throughput-per-user", type=float, default=0.0, help="Requests per second of each user; 0: as many as it can."
    )


cast(Any, events.init_command_line_parser).add_listener(add_arguments)


@functools.cache
def _metadata(host: str, model: str) -> ModelMetadata:
    with urllib.request.urlopen(f"{host}{model_path(model)}", timeout=30) as answer:
        return parse_metadata(answer.read())


@functools.cache
def _payloads(metadata: ModelMetadata, wire: Wire, rows: str, dim: tuple[str, ...], seed: int) -> list[Payload]:
    """All users of a process share the bodies: hundreds of users would hold hundreds of copies."""
    return build_payloads(metadata, PayloadPlan(wire=wire, rows=parse_sizes(rows), dims=parse_dims(dim), seed=seed))


class InferenceUser(FastHttpUser):
    """Sends inference requests in one wire form, one after the other."""

    abstract = True
    wire: Wire

    def on_start(self) -> None:
        """Asks for the model's metadata and makes the payloads, once per process; ends the run if that fails."""
        options = self.environment.parsed_options
        try:
            self.metadata = _metadata(str(self.host).rstrip("/"), options.model)
            self.payloads = _payloads(self.metadata, self.wire, options.rows, tuple(options.dim), options.seed)
        except (OSError, LoadTestError) as error:
            _LOG.error("model %r at %s: %s", options.model, self.host, error)
            self.environment.process_exit_code = 2
            # Not from here: this user is one of those that quitting waits for. Locust makes threads into greenlets.
            threading.Thread(target=self.environment.runner.quit).start()
            raise StopUser from error

    def wait_time(self) -> float:
        """Seconds until the next request, so that the user keeps its throughput where one is given."""
        throughput = self.environment.parsed_options.throughput_per_user
        return constant_throughput(throughput)(self) if throughput else 0.0

    @task
    def infer(self) -> None:
        """One request."""
        payload = random.choice(self.payloads)
        name = f"{self.wire.value} {payload.label}"
        headers = dict(payload.headers)
        # geventhttpclient takes bytes; locust's annotation knows text alone.
        body = cast(Any, payload.body)
        with self.client.post(payload.path, data=body, headers=headers, name=name, catch_response=True) as answer:
            if answer.status_code != 200:
                answer.failure(f"status {answer.status_code}: {(answer.text or '')[:200]}")
                return
            length = answer.headers.get("Inference-Header-Content-Length")
            fault = answer_fault(self.metadata, None if length is None else int(length), answer.content or b"")
            if fault is None:
                answer.success()
            else:
                answer.failure(fault)


class BinaryUser(InferenceUser):
    """Tensors as raw bytes behind a JSON header."""

    wire = Wire.BINARY


class JsonUser(InferenceUser):
    """Tensors as JSON numbers."""

    wire = Wire.JSON
