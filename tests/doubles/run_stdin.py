"""A child whose request is the Python that it runs."""

import sys

exec(sys.stdin.read())
