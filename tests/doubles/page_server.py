"""The page on a socket, before documents made by hand: what a browser sees of a server in every state."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.api.page.assets import Assets, load_assets
from service.api.page.front import PageFront
from service.diagnosis.document import to_json
from service.diagnosis.finding import BottleneckClass
from service.diagnosis.report import diagnose
from service.diagnosis.review import baseline_of, review, review_to_json
from tests.doubles.faults import FAULTS
from tests.doubles.snapshots import healthy, layer, layer_profile

STOP_TIMEOUT_S = 10
HOSTILE = '<img src=x onerror="globalThis.hacked = 1"><script>globalThis.hacked = 2</script>{{0}} & "\'`'
"""What a card, a plan or an ONNX file may have as a name."""

PROBES = ("launches", "copies")

Document = dict[str, Any]


def document_of(model: str, kind: BottleneckClass | None = None) -> Document:
    """A document of a model with layers and peaks, healthy or of a fault."""
    snapshot = FAULTS[kind]() if kind else healthy()
    layers = [
        layer("conv1 + relu", 90e-6, "compute"),
        layer("reshape", 2e-6, "neither", flops=0.0, is_reformat=True, tactic=""),
        *(layer(f"block{index}", (40 - index) * 1e-6, "memory" if index % 2 else "compute") for index in range(30)),
    ]
    named = replace(snapshot, layers=(layer_profile(*layers),), model=replace(snapshot.model, name=model))
    return dict(to_json(diagnose(named, report_id="a1")))


def hostile_document() -> Document:
    """A document in which every text that users write, or models bring, is hostile."""
    document = orjson.loads(orjson.dumps(document_of(HOSTILE, BottleneckClass.LAUNCH_BOUND)))
    document["model"]["task"] = HOSTILE
    for finding in document["findings"]:
        finding |= {"summary": HOSTILE, "note": HOSTILE, "verify": HOSTILE}
        for evidence in finding["evidence"]:
            evidence["name"] = HOSTILE
        if finding["fix"]:
            finding["fix"] = dict.fromkeys(finding["fix"], HOSTILE)
    for table in document["layers"]:
        for one in table["layers"]:
            one |= {"name": HOSTILE, "tactic": HOSTILE, "kind": HOSTILE, "origin": [HOSTILE], "dtype": HOSTILE}
    for bucket in document["buckets"]:
        bucket |= {"bucket": HOSTILE, "miss_reason": HOSTILE}
    document["window"]["headline"] = HOSTILE
    return document


@dataclass
class PageServer:
    """What the server answers; tests change it as they go.

    Attributes:
        documents: by the names of models.
        unready: reasons by the names of further models.
        key: what it asks for; empty for none.
        runs: states that a run of probes passes through, one per question.
        asked: requests so far, as `METHOD path?query`.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    unready: dict[str, str] = field(default_factory=dict)
    key: str = ""
    runs: list[str] = field(default_factory=lambda: ["running", "done"])
    asked: list[str] = field(default_factory=list)
    url: str = ""

    async def index(self, request: Request) -> Response:
        models = [{"name": name, "version": "1", "state": "READY", "reason": ""} for name in self.documents]
        models += [{"name": n, "version": "1", "state": "UNAVAILABLE", "reason": r} for n, r in self.unready.items()]
        links = {"Diagnosis": "/diagnose", "Probes (POST)": "/diagnose/probes", "Metrics": "/metrics"}
        return self._answer(
            request, {"name": "inferlane", "version": "1.0", "is_ready": True, "models": models, "links": links}
        )

    async def diagnose(self, request: Request) -> Response:
        if "text/plain" in request.headers.get("accept", ""):
            self.asked.append(f"{request.method} {request.url.path}?{request.url.query}")
            return PlainTextResponse("a report as text")
        if "since" in request.query_params:
            before = diagnose(FAULTS[BottleneckClass.LAUNCH_BOUND](), report_id="a1")
            after = diagnose(healthy(), report_id="a2")
            return self._answer(request, review_to_json(review(baseline_of(before), after)))
        name = request.query_params.get("model", next(iter(self.documents), ""))
        if name not in self.documents:
            return self._answer(request, {"error": f"no model '{name}' is watched"}, 404)
        return self._answer(request, self.documents[name])

    async def probes(self, request: Request) -> Response:
        state = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
        progress = [
            {"name": name, "numbers": "P1", "about": HOSTILE, "state": state, "rounds": 1, "busy_s": 0.1, "reason": "r"}
            for name in PROBES
        ]
        run = {"id": "r1", "model": "m", "mode": "shadow", "state": state, "probes": progress}
        return self._answer(request, run, 202 if request.method == "POST" else 200)

    def _answer(self, request: Request, content: object, status: int = 200) -> Response:
        self.asked.append(f"{request.method} {request.url.path}?{request.url.query}")
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            content, status = {"error": "got no API key"}, 401
        return Response(orjson.dumps(content), status, {"Content-Type": "application/json"})


@contextmanager
def page_server(assets: Assets | None = None) -> Iterator[PageServer]:
    """Serves on a thread of its own, on a port of the machine's choice."""
    made = PageServer()
    routes = [
        Route("/", made.index),
        Route("/diagnose", made.diagnose),
        Route("/diagnose/probes", made.probes, methods=["POST"]),
        Route("/diagnose/probes/r1", made.probes, methods=["GET", "DELETE"]),
    ]
    front = PageFront(Starlette(routes=routes), assets or load_assets(), has_report=True)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = uvicorn.Server(uvicorn.Config(front, interface="asgi3", lifespan="off", log_level="error", ws="none"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="page-server")
        thread.start()
        made.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        try:
            yield made
        finally:
            server.should_exit = True
            thread.join(STOP_TIMEOUT_S)
    assert not thread.is_alive()
