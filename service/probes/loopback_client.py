"""A process of its own that sends one request over and over to the server that started it, and counts the answers.

Standard input: a line of JSON with `host`, `port`, `connections` and `duration_s`; then the bytes of the request, head
and body. Standard output: JSON with `answered` and `seconds`, or with `problem`. It imports nothing of the server, so
that it starts soon, and shares no interpreter with it: a client in the server's own process would take half of what it
measures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

OK = b"200"


class _Refused(Exception):
    """The server answered otherwise; the message is its status and words."""


async def measure(order: Mapping[str, object], request: bytes, clock: Callable[[], float]) -> dict[str, object]:
    """Keeps one request in flight per connection, after one on each that does not count."""
    duration_s = float(str(order["duration_s"]))
    opened = [
        await asyncio.open_connection(str(order["host"]), int(str(order["port"])))
        for _ in range(int(str(order["connections"])))
    ]
    try:
        await asyncio.gather(*(_exchange(reader, writer, request) for reader, writer in opened))
        began_s = clock()
        until_s = began_s + duration_s
        counts = await asyncio.gather(*(_repeat(*each, request, until_s, clock) for each in opened))
        return {"answered": sum(counts), "seconds": clock() - began_s}
    finally:
        for _, writer in opened:
            writer.close()
            with suppress(OSError):  # what the server did to the connection has been told
                await writer.wait_closed()


async def _repeat(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: bytes,
    until_s: float,
    clock: Callable[[], float],
) -> int:
    answered = 0
    while clock() < until_s:
        await _exchange(reader, writer, request)
        answered += 1
    return answered


async def _exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    writer.write(request)
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
    status = first.split(b" ")[1]
    if status != OK:
        raise _Refused(f"{status.decode()}: {body[:200].decode('utf-8', 'replace')}")


def main() -> None:
    """Reads what to do, does it, and tells what came of it."""
    order = json.loads(sys.stdin.buffer.readline())
    request = sys.stdin.buffer.read()
    try:
        found = asyncio.run(measure(order, request, time.perf_counter))
    except (OSError, asyncio.IncompleteReadError, _Refused) as error:
        found = {"problem": str(error)}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
