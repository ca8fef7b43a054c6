"""The whole application in this process, without a socket."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from service.app import BuildPlan, create_app
from service.errors import ServiceError
from service.settings import Settings

WAIT_S = 30


class App:
    """A server between its start and its end."""

    def __init__(self, repository: Path, on_progress: Any, build_plan: BuildPlan | None, **settings: Any) -> None:
        self.failures: Mapping[str, ServiceError] = {}
        self.started = asyncio.Event()
        self.app = create_app(
            Settings(repository=repository, **settings),
            on_progress=on_progress,
            on_started=self._on_started,
            build_plan=build_plan,
        )

    def _on_started(self, failures: Mapping[str, ServiceError]) -> None:
        self.failures = failures
        self.started.set()

    async def request(self, method: str, path: str, **rest: Any) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.request(method, path, **rest)


@asynccontextmanager
async def running(
    repository: Path,
    *,
    wait: bool = True,
    wait_s: float = WAIT_S,
    on_progress: Any = None,
    build_plan: BuildPlan | None = None,
    **settings: Any,
) -> AsyncIterator[App]:
    made = App(repository, on_progress or (lambda progress: None), build_plan, **settings)
    async with made.app.router.lifespan_context(made.app):
        if wait:
            await asyncio.wait_for(made.started.wait(), wait_s)
        yield made
    assert server_threads() == []


def server_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("lane-", "pipeline"))]
