"""Shared memory objects of clients: registered under a name, and copied from and into."""
