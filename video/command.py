"""`inferlane video`: reads a source, streams it to a model, shows how fast, and keeps what was seen."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from video.errors import VideoError
from video.sinks import JsonLinesSink, VideoSink
from video.source import Source, SourceFrame, open_source
from video.stream import Answered, FrameStream, connected, open_stream
from video.wire import FrameFormat, default_format, encode, header

STATUS_FAILED = 1
STATUS_NOT_BEGUN = 2
STATUS_INTERRUPTED = 130

LEAST_SHARE = 0.9
"""Of the frames that a file says it has, and many say about, below which it is not whole."""

RECENT = 500
"""Frames that the shown percentiles are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoOrder:
    """What is asked for.

    Attributes:
        source: a file, a folder, or a camera's index.
        model: name of the model.
        url: of the server.
        output: annotated video to write, or None.
        json_lines: file for the answers, or None.
        frame_format: how frames travel; None chooses what suits them.
        is_latest: whether frames that the server has no time for are dropped; a file is then sent as fast as it plays.
        max_in_flight: frames worked on at once; None leaves it to the server.
        api_key: the server's, or None.
        options: of the model's task.
    """

    source: str
    model: str
    url: str
    output: Path | None = None
    json_lines: Path | None = None
    frame_format: FrameFormat | None = None
    is_latest: bool = False
    max_in_flight: int | None = None
    api_key: str | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tally:
    """What became of the frames so far."""

    began_s: float
    answered: int = 0
    dropped: int = 0
    failed: int = 0
    first_error: str = ""
    latencies_s: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))

    def add(self, answered: Answered) -> None:
        """Counts one frame."""
        self.answered += 1
        if answered.answer.get("dropped"):
            self.dropped += 1
        elif answered.is_failed:
            self.failed += 1
            self.first_error = self.first_error or f"frame {answered.number}: {answered.answer['error']}"
        else:
            self.latencies_s.append(answered.latency_s)

    def text(self) -> str:
        """As in `31.0 frames/s, p50 12 ms, p99 20 ms, 3 dropped`; percentiles of the latest frames."""
        elapsed_s = max(time.monotonic() - self.began_s, 1e-9)
        parts = [f"{self.answered / elapsed_s:.1f} frames/s"]
        if self.latencies_s:
            p50_s, p99_s = np.percentile(self.latencies_s, [50, 99])
            parts += [f"p50 {p50_s * 1e3:.1f} ms", f"p99 {p99_s * 1e3:.1f} ms"]
        parts += [f"{count} {word}" for count, word in ((self.dropped, "dropped"), (self.failed, "failed")) if count]
        return ", ".join(parts)


def run(order: VideoOrder, console: Console) -> int:
    """Streams a source from its beginning to its end; Ctrl-C or SIGTERM ends it early and finishes the files.

    Args:
        order: what is asked for.
        console: for progress, the summary and errors.

    Returns:
        The exit status: 0, `STATUS_FAILED` where the server could not answer a frame or ended the stream,
        `STATUS_NOT_BEGUN` where no frame was sent, or `STATUS_INTERRUPTED`.
    """
    tally = Tally(time.monotonic())
    try:
        is_interrupted = _stream(order, console, tally)
    except VideoError as error:
        _tell(console, f"error: {error}", "red")
        return STATUS_FAILED if tally.answered else STATUS_NOT_BEGUN
    console.print(f"{tally.answered} frames, {tally.text()}", highlight=False, soft_wrap=True)
    if tally.first_error:
        _tell(console, tally.first_error, "red")
    return STATUS_INTERRUPTED if is_interrupted else STATUS_FAILED if tally.failed else 0


def _stream(order: VideoOrder, console: Console, tally: Tally) -> bool:
    """Whether it was interrupted."""
    _check_files(order)
    source = open_source(order.source)
    first = next(source.frames, None)
    if first is None:
        raise VideoError(f"{order.source} holds no frame")
    frame_format = order.frame_format or default_format(first.image, is_folder=source.is_folder)
    said = {
        **header(first.image, frame_format),
        "freshness": "latest" if order.is_latest else "all",
        "options": order.options,
    }
    frames = itertools.chain([first], source.frames)
    with ExitStack() as stack:
        connection = stack.enter_context(connected(order.url, order.model, order.api_key))
        stream, _ = open_stream(connection, said, max_in_flight=order.max_in_flight)
        sinks: list[VideoSink | JsonLinesSink] = []
        if order.output is not None:
            sinks.append(stack.enter_context(VideoSink(order.output, source.frames_per_s)))
        if order.json_lines is not None:
            sinks.append(stack.enter_context(JsonLinesSink(order.json_lines)))
        tally.began_s = time.monotonic()
        paced = _paced(frames, source.frames_per_s) if order.is_latest else frames
        answers = stream.answers(paced, lambda frame: _message(frame, first, frame_format))
        is_interrupted = _consume(answers, stream, sinks, tally, _Bar(console, source, tally))
    if source.count is not None and not is_interrupted and tally.answered < LEAST_SHARE * source.count:
        counts = f"{order.source} ended after {tally.answered} frames, but says that it has {source.count}"
        _tell(console, f"{counts}; it is damaged or cut off", "yellow")
    return is_interrupted


def _tell(console: Console, text: str, style: str) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def _check_files(order: VideoOrder) -> None:
    """To write over what is read would destroy it, before it was read."""
    files = [file for file in (order.output, order.json_lines) if file is not None]
    source = Path(order.source)
    for file in files:
        if file.exists() and source.exists() and file.samefile(source):
            raise VideoError(f"{file} is what is to be read; write to another file")
    if len({file.resolve() for file in files}) < len(files):
        raise VideoError(f"{files[0]} cannot be both the video and its answers; name two files")


def _consume(
    answers: Iterator[Answered],
    stream: FrameStream,
    sinks: list[VideoSink | JsonLinesSink],
    tally: Tally,
    bar: _Bar,
) -> bool:
    """Keeps every answer; an interrupt ends the sending, and the answers that are owed are kept too."""
    with bar, _interrupt(stream.end) as is_interrupted:
        for answered in answers:
            tally.add(answered)
            for sink in sinks:
                sink.write(answered)
            bar.advance()
    return is_interrupted.is_set()


@contextmanager
def _interrupt(end: Callable[[], None]) -> Iterator[threading.Event]:
    """Calls `end` on the first Ctrl-C or SIGTERM, and tells of it; a second one interrupts as ever."""
    is_interrupted = threading.Event()

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        restore()
        is_interrupted.set()
        end()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, on_interrupt)
    try:
        yield is_interrupted
    finally:
        restore()


def _message(frame: SourceFrame, first: SourceFrame, frame_format: FrameFormat) -> bytes:
    if frame_format is not FrameFormat.JPEG and frame.image.shape != first.image.shape:
        (height, width, _), (first_height, first_width, _) = frame.image.shape, first.image.shape
        raise VideoError(
            f"{frame.name or 'a frame'} has {width} x {height} pixels, those before it {first_width} x {first_height}; "
            f"frames of different sizes travel as jpeg, not as {frame_format.value}"
        )
    return encode(frame.image, frame_format)


def _paced(frames: Iterator[SourceFrame], frames_per_s: float) -> Iterator[SourceFrame]:
    """As they would come from a camera; one is never early. A camera's own frames come later anyway."""
    begin_s = time.monotonic()
    for number, frame in enumerate(frames):
        time.sleep(max(0.0, begin_s + number / frames_per_s - time.monotonic()))
        yield frame


class _Bar:
    """The progress bar: a context manager."""

    def __init__(self, console: Console, source: Source, tally: Tally) -> None:
        self._tally = tally
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[figures]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("frames", total=source.count, figures="")

    def __enter__(self) -> None:
        self._progress.start()

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self) -> None:
        """Shows one more frame; the figures now and then."""
        if self._tally.answered % 10 == 1:
            self._progress.update(self._task, figures=self._tally.text())
        self._progress.advance(self._task)
