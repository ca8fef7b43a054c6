"""The models that serve, as experiments see them: what they may use, and where the traffic is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from service.api.probe_codec import SyntheticCodec, http_request
from service.batching.batcher import Batcher
from service.batching.lane_count import representatives
from service.buckets import Bucket, Form
from service.errors import InvalidInput
from service.probes.bench import Tools
from service.probes.runner import ProbeRunner, Subject
from service.probes.self_load import HttpTarget, SelfLoad
from service.repository.composed import ComposedModel
from service.repository.registry import Registry
from service.repository.served import ServedModel
from service.requests import InferenceRequest
from service.runtime.protocol import Backend
from service.runtime.synthetic import synthetic_request
from service.telemetry.figures import ModelFigures
from service.telemetry.histogram import Histograms
from service.telemetry.recorder import Recorder
from service.telemetry.snapshot_probes import Peaks

MOST_BUCKETS = 3
"""That experiments are made with: the busiest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the server knows and experiments need.

    Attributes:
        peaks: measures what the machine that runs a backend does at best; blocking.
        api_key: that inference needs, where it needs one.
    """

    peaks: Callable[[Backend], Peaks]
    api_key: str | None


class Subjects:
    """Makes of models that serve what experiments are run on.

    Args:
        registry: the models.
        recorder: counts their requests.
        machine: what it runs on.
    """

    def __init__(self, registry: Registry, recorder: Recorder, machine: Machine) -> None:
        self._registry = registry
        self._recorder = recorder
        self._machine = machine

    def serving(self, name: str) -> Batcher | None:
        """The batcher of a model that serves; None where none does, or it is composed of others."""
        found = next((served for served in self._registry.served() if served.spec.name == name), None)
        return found.batcher if isinstance(found, ServedModel) else None

    def of(self, name: str | None, address: tuple[str, int] | None) -> Subject:
        """The model by that name; the only one that serves if there is none.

        Args:
            name: from the client.
            address: where this server was reached; None where not by TCP.

        Raises:
            ModelNotFound, NotReady: no such model serves.
            InvalidInput: it is composed of others, or no name was given and several serve.
        """
        served = self._registry.get(name if name is not None else self._only())
        if isinstance(served, ComposedModel):
            members = ", ".join(served.spec.card.members.values())
            raise InvalidInput(f"model '{served.spec.name}' is composed of {members}; experiment with one of those")
        spec = served.spec
        figures = partial(self._recorder.model_figures, spec.name, spec.version)
        return Subject(
            spec=spec,
            costs=served.costs,
            batcher=served.batcher,
            buckets=busiest(figures(), tuple(spec.buckets.known())),
            durations=partial(_durations, figures),
            tools=partial(self._tools, served, figures, address, asyncio.get_running_loop()),
        )

    def _only(self) -> str:
        names = [served.spec.name for served in self._registry.served() if isinstance(served, ServedModel)]
        if len(names) != 1:
            raise InvalidInput(f"'model' is missing; name one of {', '.join(names) or 'none that serves yet'}")
        return names[0]

    def _tools(
        self,
        served: ServedModel,
        figures: Callable[[], ModelFigures | None],
        address: tuple[str, int] | None,
        loop: asyncio.AbstractEventLoop,
        rest: Callable[[float], None],
    ) -> Tools:
        spec, api_key = served.spec, self._machine.api_key
        request = usual_request(served, figures())
        target = None
        if address is not None:
            on_the_wire = partial(http_request, spec, host=address[0], api_key=api_key)
            target = HttpTarget(*address, request=on_the_wire)
        return Tools(
            peaks=self._machine.peaks,
            codec=partial(SyntheticCodec.of, spec, request),
            load=SelfLoad(served.batcher, spec, request, target, loop=loop),
            rest=rest,
        )


class Probing:
    """All that one server has for experiments on itself.

    Args:
        registry: the models.
        recorder: counts their requests.
        machine: what they run on.

    Attributes:
        subjects: makes of models what is experimented on.
        runner: begins runs and keeps what they found.
    """

    def __init__(self, registry: Registry, recorder: Recorder, machine: Machine) -> None:
        self._registry = registry
        self.subjects = Subjects(registry, recorder, machine)
        self.runner = ProbeRunner(serving=self.subjects.serving, on_device_lost=registry.lose_device)

    async def stop(self) -> None:
        """Ends the run that is under way; where a device is lost it is not waited for, since it may never come back."""
        if not self._registry.has_lost_device:
            await self.runner.stop()


def busiest(figures: ModelFigures | None, known: tuple[Bucket, ...]) -> tuple[Bucket, ...]:
    """The known buckets that most time was spent in; small and large ones where nothing has run yet.

    Empty where no bucket is known.
    """
    if not known:
        return ()
    spent_ns: dict[Bucket, int] = {}
    if figures is not None:
        totals = figures.batches.bucket_stages_ns.sum(axis=1)
        for bucket, ns in zip(figures.buckets, totals.tolist(), strict=False):
            if bucket is not None and bucket in known and ns:
                spent_ns[bucket] = ns
    ordered = sorted(spent_ns, key=lambda bucket: (-spent_ns[bucket], bucket))
    return tuple(ordered[:MOST_BUCKETS]) or representatives(known)


def usual_request(served: ServedModel, figures: ModelFigures | None) -> InferenceRequest:
    """A request of tensors with as many rows as the traffic's usually have, in the dims of the busiest bucket."""
    buckets = served.spec.buckets
    tensors = [bucket for bucket in busiest(figures, tuple(buckets.known())) if bucket.form is Form.TENSORS]
    dims = tensors[0].dims if tensors else next(iter(buckets.known())).dims
    rows = 1
    if figures is not None and figures.requests.count:
        rows = round(figures.requests.rows / figures.requests.count)
    return synthetic_request(served.spec, dims, rows=max(1, min(rows, buckets.max_size)))


def _durations(figures: Callable[[], ModelFigures | None]) -> Histograms | None:
    found = figures()
    return found.requests.fine if found is not None else None
