"""Offline work on models: the demo repository today, engine building later."""
