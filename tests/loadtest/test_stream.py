"""Load by streams: against a real server, and its figures by hand."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from loadtest.connection import Endpoint
from loadtest.errors import LoadTestError
from loadtest.stream import main
from loadtest.stream_connection import StreamConnection, binary_frame
from loadtest.stream_loop import FrameRecord, Pace, StreamLoop
from loadtest.stream_report import ServerCounts, figures, parse_counts, server_counts, server_figures
from service.api.body import ByteBudget
from service.websocket.reader import Message, MessageReader
from tests.doubles import onnx_models
from tests.doubles.running_server import RunningServer, StartServer, add_model, free_port, start_server

__all__ = ["start_server"]

DETECT = 'task = "detect"\nlabels = ["cat", "dog"]\n[preprocess]\nresize = "letterbox"\n[buckets]\nbatch = [1, 4]\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, start_server: StartServer) -> RunningServer:
    repository = tmp_path_factory.mktemp("load")
    add_model(repository, "boxes", onnx_models.make_detector, DETECT)
    return start_server(repository, api_key="secret")


def invoke(server: RunningServer, *arguments: str) -> Any:
    app = typer.Typer()
    app.command()(main)
    size = ["--width", "64", "--height", "48", "--duration", "0.5", "--warm-up", "0.1"]
    key = ["--header", "Authorization: Bearer secret"]
    return CliRunner().invoke(app, ["boxes", "--url", server.url, *size, *key, *arguments])


@pytest.mark.e2e
@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "nv12"],
        ["--streams", "3", "--max-in-flight", "2"],
        ["--streams", "2", "--rate", "50"],
        ["--rate", "400", "--freshness", "latest", "--format", "bgr"],
    ],
)
def test_frames_are_answered_and_counted(server: RunningServer, tmp_path: Path, arguments: list[str]) -> None:
    result = invoke(server, *arguments, "--json", str(tmp_path / "figures.json"))
    assert result.exit_code == 0, result.output
    said = orjson.loads((tmp_path / "figures.json").read_bytes())
    total = said["total"]
    assert total["answered"] > 0
    assert total["failed"] == 0
    assert 0 < total["p50_ms"] <= total["p99_ms"] <= total["max_ms"]
    assert total["answered"] == sum(stream["answered"] for stream in said["streams"])
    assert "compute" in result.output
    if "50" in arguments:
        assert total["answered"] == 2 * 25
    else:
        assert said["server"] is not None


@pytest.mark.e2e
def test_what_cannot_be_run_says_why(server: RunningServer, tmp_path: Path) -> None:
    result = invoke(server, "--max-in-flight", "1000")
    assert result.exit_code == 2
    endpoint = Endpoint("127.0.0.1", int(server.address.split(":")[1]))
    with pytest.raises(LoadTestError, match=r"opens no stream: HTTP/1\.1 401"):
        StreamConnection(endpoint, "boxes", (), 10)
    with pytest.raises(LoadTestError, match="is it running"):
        StreamConnection(Endpoint("127.0.0.1", free_port()), "boxes", (), 10)
    with pytest.raises(LoadTestError, match="http:// alone"):
        StreamConnection(Endpoint("127.0.0.1", 1, is_tls=True), "boxes", (), 10)
    with pytest.raises(LoadTestError, match="metrics cannot be read"):
        server_counts(Endpoint("127.0.0.1", free_port()), "boxes", (), 10)


@given(st.binary(max_size=300) | st.integers(65_000, 66_000).map(bytes))
def test_frames_are_what_the_server_reads(payload: bytes) -> None:
    reader = MessageReader(max_bytes=1 << 20, budget=ByteBudget(1 << 20), clock=lambda: 1)
    sent = binary_frame(payload)
    message = None
    while sent and message is None:
        room = reader.room()
        nbytes = min(len(room), len(sent))
        room[:nbytes] = sent[:nbytes]
        sent = sent[nbytes:]
        reader.received(nbytes)
        message = reader.next_event()
    assert isinstance(message, Message)
    assert bytes(message.data) == payload


class FakeConnection:
    """Answers each frame, until it is told to break."""

    def __init__(self, breaks_after: int = 1 << 30) -> None:
        self.sent = threading.Semaphore(0)
        self.breaks_after = breaks_after
        self.heard = 0

    def send(self, frame: bytes) -> None:
        self.sent.release()

    def hear(self) -> dict[str, Any]:
        self.sent.acquire()
        self.heard += 1
        if self.heard > self.breaks_after:
            raise LoadTestError("broken")
        return {"frame": self.heard - 1}


def test_a_stream_that_breaks_is_told() -> None:
    loop = StreamLoop(FakeConnection(3), [b"x"], Pace(None, 0, 1e18), 2)  # type: ignore[arg-type]
    loop.run()
    assert loop.failure == "broken"
    assert len(loop.records) == 3


def test_a_window_is_never_exceeded() -> None:
    connection = FakeConnection()
    loop = StreamLoop(connection, [b"x"], Pace(1e9, 0, 5e-7), 1)  # type: ignore[arg-type]
    loop.run()
    assert [record.due_s for record in loop.records] == [number / 1e9 for number in range(500)]


def record(due_s: float, latency_s: float, *, dropped: bool = False, error: str = "") -> FrameRecord:
    return FrameRecord(due_s, due_s + latency_s, dropped, error)


def test_figures_are_of_the_measured_time() -> None:
    records = [
        record(0.5, 0.001),
        record(1.0, 0.010),
        record(1.5, 0.020),
        record(2.0, 0.030),
        record(2.9, 0.5),
        record(2.5, 0.1, dropped=True),
        record(2.6, 0.1, error="no"),
        record(3.0, 0.1),
    ]
    made = figures(records, 2, 1.0, 3.0)
    assert (made.streams, made.answered, made.dropped, made.failed, made.first_error) == (2, 4, 1, 1, "no")
    assert made.frames_per_s == 3 / 2
    assert (made.p50_ms, made.max_ms) == (pytest.approx(20), pytest.approx(500))


def test_figures_of_nothing_are_none() -> None:
    made = figures([record(1, 1, error="no")], 1, 0, 2)
    assert (made.answered, made.frames_per_s, made.p50_ms, made.p99_ms) == (0, 0, None, None)


METRICS = """# TYPE inferlane_request_stage_seconds histogram
inferlane_request_stage_seconds_sum{model="m",stage="read",version="1"} 2.0
inferlane_request_stage_seconds_sum{model="m",stage="compute",version="1"} 3.5
inferlane_request_stage_seconds_sum{model="other",stage="compute",version="1"} 9.0
inferlane_request_duration_seconds_count{model="m",version="1"} 10.0
inferlane_batch_size_rows_sum{model="m",version="1"} 12.0
inferlane_batch_size_rows_count{model="m",version="1"} 4.0
process_cpu_seconds_total 7.5
inferlane_batch_size_rows_sum{model="m",version="1"} many
inferlane_batch_size_rows_sum{model="m",version="1"} NaN
inferlane_batch_size_rows_sum{model="m",version="1"} 1.2.3
"""


def test_counts_are_read_from_metrics() -> None:
    counts = parse_counts(METRICS, "m")
    assert counts == ServerCounts({"read": 2.0, "compute": 3.5}, 10.0, 12.0, 4.0, 7.5)
    before = ServerCounts({"read": 1.0}, 5.0, 2.0, 2.0, 5.5)
    assert server_figures(before, counts, 4.0) == {
        "requests": 5.0,
        "stages_ms": {"read": pytest.approx(200), "compute": pytest.approx(700)},
        "mean_batch_rows": 5.0,
        "cores_used": 0.5,
    }
    assert server_figures(counts, counts, 1.0)["mean_batch_rows"] is None


@contextmanager
def server_that_says(said: bytes) -> Iterator[Endpoint]:
    """Takes one connection, says it, and waits until its client leaves."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                connection.recv(4096)
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield Endpoint("127.0.0.1", listener.getsockname()[1])
        thread.join()


OPENED = b"HTTP/1.1 101 x\r\n\r\n"


def test_a_server_that_closes_is_told() -> None:
    said = OPENED + b"\x89\x02hi\x88\x05\x03\xe9bye"
    with server_that_says(said) as endpoint, StreamConnection(endpoint, "m", (), 10) as connection:
        with pytest.raises(LoadTestError, match="ended the stream: bye"):
            connection.hear()
        with pytest.raises(LoadTestError, match="says nothing any more"):
            connection.hear()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"\x81\x05hello", "says b'hello', as no stream"),
        (b"\x81\x02\xff\xfe", "as no stream"),
        (b"\x81\x03[1]", "as no stream"),
        (b"\x81\x7f" + (1 << 60).to_bytes(8, "big"), "announces a message of 1152921504606846976 bytes"),
    ],
)
def test_a_server_that_is_no_stream_is_told(said: bytes, told: str) -> None:
    with (
        server_that_says(OPENED + said) as endpoint,
        StreamConnection(endpoint, "m", (), 10) as connection,
        pytest.raises(LoadTestError, match=told),
    ):
        connection.hear()


@pytest.mark.parametrize("length", [b"abc", b"-5", b"2", b"99999999999999"])
def test_a_server_that_opens_no_stream_is_told(length: bytes) -> None:
    said = b"HTTP/1.1 400 no\r\nContent-Length: %s\r\n\r\nhi" % length
    with server_that_says(said) as endpoint, pytest.raises(LoadTestError, match=r"opens no stream: .* 400 no"):
        StreamConnection(endpoint, "m", (), 10)


def test_a_header_that_cannot_be_said_is_told() -> None:
    with server_that_says(OPENED) as endpoint, StreamConnection(endpoint, "m", (), 10) as connection:
        connection._socket.shutdown(socket.SHUT_WR)
        with pytest.raises(LoadTestError, match="ended the stream at once"):
            connection.say({})
