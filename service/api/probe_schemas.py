"""Bodies of `/diagnose/probes`, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field


class ProbesRequest(BaseModel):
    """What to run; every field may be left out."""

    model: str = Field("", description="Name of a model; may be left out where one alone serves.")
    probes: list[str] | Literal["all"] = Field("all", description="Names of probes, or all of them.")
    mode: Literal["shadow", "exclusive"] = Field(
        "shadow",
        description="`shadow` runs beside the traffic, for a small share of the time; `exclusive` lets requests wait.",
    )
    max_pause_s: float = Field(2.0, description="Seconds for which requests wait at most, in the mode `exclusive`.")


class ProbeProgress(BaseModel):
    """One probe of a run."""

    name: str
    numbers: str = Field(description="By which the diagnosis speaks of it.")
    about: str
    state: Literal["waiting", "running", "done", "skipped", "failed", "stopped"]
    rounds: int
    busy_s: float = Field(description="Seconds that its rounds took.")
    reason: str | None = Field(None, description="Why it was skipped or stopped, or has failed.")


class ProbeRunDocument(BaseModel):
    """A run of probes."""

    id: str
    model: str
    mode: Literal["shadow", "exclusive"]
    state: Literal["running", "done", "stopped"]
    began_unix_s: float
    probes: list[ProbeProgress]
    figures: dict[str, Any] = Field(description="What was measured, with 95 % intervals; seconds, bytes and rows.")
    layers: list[dict[str, Any]] = Field(description="Buckets whose layers were timed.")
