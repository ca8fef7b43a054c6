"""`python -m service.processes.child FD NAME`: a process that a supervisor starts; never run by hand."""

from __future__ import annotations

import socket
import sys

from service.processes.orders import end_with_supervisor, take_orders

LAST_END_S = 10.0
"""Beyond the drain, until a process whose supervisor is gone ends for certain."""


def main() -> int:
    """Does what the orders say; returns the exit status."""
    control = socket.socket(fileno=int(sys.argv[1]))
    orders = take_orders(control)
    end_with_supervisor(control, within_s=orders.settings.drain_timeout_s + LAST_END_S)
    if orders.region is None:
        from service.processes.engine import run_engine  # noqa: PLC0415

        return run_engine(orders, control)
    from service.processes.front_end import run_front_end  # noqa: PLC0415

    return run_front_end(orders, orders.region)


if __name__ == "__main__":
    sys.exit(main())
