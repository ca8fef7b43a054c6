"""The command line's way of running experiments, against a server that plays a script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from service.diagnosis_text.probes import POLL_S, run_probes
from service.errors import DiagnosisUnavailable


def document(state: str, *states: str) -> dict[str, Any]:
    names = ("launches", "lanes", "codecs")
    probes = [
        {"name": name, "numbers": "P1", "about": f"about {name}", "state": each, "reason": "no device"}
        if each == "skipped"
        else {"name": name, "numbers": "P1", "about": f"about {name}", "state": each}
        for name, each in zip(names, states, strict=True)
    ]
    return {"id": "r1", "model": "m", "state": state, "probes": probes}


SCRIPT = (
    document("running", "running", "waiting", "waiting"),
    document("running", "skipped", "running", "waiting"),
    document("done", "skipped", "done", "failed"),
)


class Handler(BaseHTTPRequestHandler):
    asked: list[tuple[str, str, str | None, bytes]]
    answers: list[dict[str, Any]]
    status = 200

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.asked.append((self.command, self.path, self.headers.get("Authorization"), body))
        content = json.dumps(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]).encode()
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def handler() -> Iterator[Any]:
    class Own(Handler):
        url = ""

    Own.asked, Own.answers = [], list(SCRIPT)
    server = HTTPServer(("127.0.0.1", 0), Own)
    Own.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Own
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_experiment_is_told_once_when_it_is_over(handler) -> None:
    shown: list[str] = []
    waited: list[float] = []
    found = run_probes(
        handler.url, "m", "shadow", api_key="k", show=lambda line: shown.append(line.plain), wait=waited.append
    )
    assert found == SCRIPT[-1]
    assert shown[0] == "probing model m in mode shadow: run r1"
    assert [line.split() for line in shown[1:]] == [
        ["P1", "launches", "skipped", "no", "device"],
        ["P1", "lanes", "done", "about", "lanes"],
        ["P1", "codecs", "failed", "about", "codecs"],
    ]
    assert waited == [POLL_S, POLL_S]
    (post, *gets) = handler.asked
    assert post[:3] == ("POST", "/diagnose/probes", "Bearer k")
    assert json.loads(post[3]) == {"probes": "all", "mode": "shadow", "model": "m"}
    assert gets == [("GET", "/diagnose/probes/r1", "Bearer k", b"")] * 2


def test_interrupted_it_ends_the_run_on_the_server_too(handler) -> None:
    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_probes(handler.url, None, "exclusive", api_key=None, show=lambda line: None, wait=interrupt)
    assert [(method, path) for method, path, *_ in handler.asked] == [
        ("POST", "/diagnose/probes"),
        ("DELETE", "/diagnose/probes/r1"),
    ]


def test_a_refusal_is_told(handler) -> None:
    handler.status, handler.answers = 409, [{"error": "run r0 is under way"}]
    with pytest.raises(DiagnosisUnavailable, match="answered 409: run r0 is under way"):
        run_probes(handler.url, "m", "shadow", api_key=None, show=lambda line: None)
