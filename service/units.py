"""Nanoseconds in the other units of time that cards, clients and metrics use."""

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
