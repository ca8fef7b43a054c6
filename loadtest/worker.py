"""`python -m loadtest.worker FD`: a client process that runs its share of steps for `loadtest.generators`.

Speaks the messages of `loadtest.orders` over a socket that it inherited, and ends when the other side closes it.
"""

from __future__ import annotations

import signal
import socket
import sys
from typing import BinaryIO

from loadtest.clock import Clock, SystemClock
from loadtest.errors import LoadTestError
from loadtest.figures import Tally, tally
from loadtest.orders import Failed, Order, Ready, packed, read_message
from loadtest.records import Window
from loadtest.session import run_in_loop


async def work(source: BinaryIO, sink: BinaryIO) -> None:
    """Carries out orders until the end. Reading blocks the event loop, on which nothing runs between two steps."""
    async with SystemClock() as clock:
        while isinstance(order := read_message(source), Order):
            answer = await _obey(clock, order, source, sink)
            sink.write(packed(answer))
            sink.flush()


async def _obey(clock: Clock, order: Order, source: BinaryIO, sink: BinaryIO) -> Tally | Failed:
    try:
        async with order.session.prepared(clock, order.job) as run:
            sink.write(packed(Ready()))
            sink.flush()
            window = read_message(source)
            if not isinstance(window, Window):
                return Failed("the step was given up before it began")
            return tally(await run(window))
    except LoadTestError as error:
        return Failed(str(error))


def main() -> None:
    """Works for the process that started this one."""
    # Ctrl-C reaches the whole group; the one who answers to the user is the parent, and its end ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with (
        socket.socket(fileno=int(sys.argv[1])) as connection,
        connection.makefile("rb") as source,
        connection.makefile("wb") as sink,
    ):
        run_in_loop(work(source, sink))


if __name__ == "__main__":
    main()
