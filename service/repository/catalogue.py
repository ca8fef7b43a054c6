"""What serves under which name, and what does not and why: all that a look-up needs to know.

The registry keeps one as it loads and unloads; a front-end process keeps a copy of it, so that both answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar

from service.errors import ModelNotFound, NotReady
from service.repository.composed import AnyModel
from service.repository.served import IndexEntry

ModelT = TypeVar("ModelT", bound=AnyModel)


class Models(Protocol):
    """Where the models of requests are looked up. On the event loop."""

    def get(self, name: str, version: str | None = None) -> AnyModel:
        """The model to submit to.

        Raises:
            ModelNotFound: no such model or version in the repository.
            NotReady: it is in the repository, and loading, unloading or failed; or nothing serves now.
        """


class Audience(Protocol):
    """Whoever follows a catalogue from elsewhere. On the event loop."""

    def changed(self) -> None:
        """The catalogue is different; at no cost, for it changes several times at once."""

    async def informed(self) -> None:
        """Returns once all that follow serve by the catalogue as it is now, or too long have not said so."""


class Nobody:
    """An `Audience` that is not there."""

    def changed(self) -> None:
        """Does nothing."""

    async def informed(self) -> None:
        """Returns at once."""


class Catalogue(Generic[ModelT]):
    """Models by name. Owned by the event loop.

    Args:
        on_change: told after every change.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._models: dict[str, ModelT] = {}
        self._unavailable: dict[str, IndexEntry] = {}
        self._is_complete = False

    @property
    def models(self) -> Mapping[str, ModelT]:
        """What serves, by name; a view that changes with the catalogue."""
        return MappingProxyType(self._models)

    @property
    def unavailable(self) -> Mapping[str, IndexEntry]:
        """What does not serve, or failed to be replaced, by name; likewise."""
        return MappingProxyType(self._unavailable)

    @property
    def is_complete(self) -> bool:
        """Whether every model was tried: only then is it known that there is none of some name."""
        return self._is_complete

    def get(self, name: str, version: str | None = None) -> ModelT:
        """The model to submit to; see `Models.get`."""
        model = self._models.get(name)
        if model is not None and (version is None or version == model.spec.version):
            return model
        entry = self._unavailable.get(name)
        if entry is not None and (version is None or version == entry.version):
            raise NotReady(f"model '{name}' is not ready: {entry.reason or entry.state.value.lower()}")
        if not self._is_complete:
            raise NotReady("the server is still starting; GET /v2/health/ready says when it is done")
        if model is not None:
            raise ModelNotFound(
                f"Request for unknown model: '{name}' version {version} is not found; "
                f"version {model.spec.version} is served"
            )
        wanted = f"'{name}'" if version is None else f"'{name}' version {version}"
        raise ModelNotFound(
            f"Request for unknown model: {wanted} is not found; POST /v2/repository/index lists the models"
        )

    def put(self, model: ModelT) -> None:
        """Serves a model from now on, in place of the one of its name."""
        self._models[model.spec.name] = model
        self._unavailable.pop(model.spec.name, None)
        self._on_change()

    def take(self, name: str) -> ModelT | None:
        """Serves a model no more, and returns it if it did."""
        model = self._models.pop(name, None)
        if model is not None:
            self._on_change()
        return model

    def explain(self, entry: IndexEntry) -> None:
        """Says why a model does not serve, or was not replaced."""
        self._unavailable[entry.name] = entry
        self._on_change()

    def complete(self) -> None:
        """Every model was tried."""
        self._is_complete = True
        self._on_change()
