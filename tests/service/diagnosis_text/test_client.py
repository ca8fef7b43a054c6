"""The client against a real HTTP server of the standard library."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from service.diagnosis_text.client import fetch
from service.errors import DiagnosisUnavailable


class Handler(BaseHTTPRequestHandler):
    answers: tuple[int, bytes] = (200, b"{}")
    asked: tuple[str, str | None] = ("", None)

    def do_GET(self) -> None:
        type(self).asked = (self.path, self.headers.get("Authorization"))
        status, body = self.answers
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def handler() -> Iterator[type[Handler]]:
    class Own(Handler):
        url = ""

    server = HTTPServer(("127.0.0.1", 0), Own)
    Own.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield Own
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_document_is_fetched_with_query_and_key(handler):
    handler.answers = (200, b'{"schema": "inferlane.diagnosis/1", "id": "x"}')
    assert fetch(handler.url + "/", {"model": "a b", "window": "5"}, api_key="k")["id"] == "x"
    assert handler.asked == ("/diagnose?model=a+b&window=5", "Bearer k")
    fetch(handler.url, {})
    assert handler.asked == ("/diagnose", None)


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b'{"error": "no such model"}', "answered 404: no such model"),
        (502, b"<html>bad gateway", "answered 502: <html>bad gateway"),
        (200, b"<html>", "answered no JSON"),
        (200, b'{"hello": 1}', "answered no diagnosis"),
        (200, b"[]", "answered no JSON object"),
    ],
)
def test_whatever_else_is_answered_is_told(handler, status, body, told):
    handler.answers = (status, body)
    with pytest.raises(DiagnosisUnavailable, match=told):
        fetch(handler.url, {})


def test_a_server_that_is_not_there(handler):
    with pytest.raises(DiagnosisUnavailable, match="cannot be reached"):
        fetch("http://127.0.0.1:1", {})


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "file:///etc/passwd", ""])
def test_only_http_is_spoken(url):
    with pytest.raises(DiagnosisUnavailable, match="write it as http://"):
        fetch(url, {})
