"""The protocol's bodies as pydantic models: they write the OpenAPI document, and the tests hold the answers to them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Body(BaseModel):
    """A JSON body with the fields below and no others."""

    model_config = ConfigDict(extra="forbid")


class ErrorBody(Body):
    """Every answer other than 200."""

    error: str = Field(description="What was got, what is allowed, how to mend it.")


class ServerMetadata(Body):
    """What the server is."""

    name: str
    version: str
    extensions: list[str] = Field(description="The protocol's extensions that this server offers.")


class TensorMetadata(Body):
    """One input or output of a model."""

    name: str
    datatype: str = Field(examples=["FP32"])
    shape: list[int] = Field(
        description="-1 for a dynamic dimension; includes the batch dimension.", examples=[[-1, 3, 224, 224]]
    )


class ModelMetadata(Body):
    """A model version and its tensors."""

    name: str
    versions: list[str] = Field(description="Every served version, ascending.")
    platform: str = Field(examples=["tensorrt_plan", "onnxruntime_onnx"])
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ConfigTensor(Body):
    """One input or output in the model's configuration."""

    name: str
    data_type: str = Field(examples=["TYPE_FP32"])
    dims: list[int] = Field(description="-1 for a dynamic dimension; excludes the batch dimension.")


class ConfigInput(ConfigTensor):
    """One input in the model's configuration."""

    is_shape_tensor: bool
    optional: bool


class ConfigOutput(ConfigTensor):
    """One output in the model's configuration."""

    label_filename: str


class QueuePolicy(Body):
    """Limits of the model's queue."""

    timeout_action: str
    default_timeout_microseconds: int
    allow_timeout_override: bool
    max_queue_size: int


class DynamicBatching(Body):
    """How requests for the model join into batches."""

    preferred_batch_size: list[int]
    max_queue_delay_microseconds: int
    preserve_ordering: bool
    priority_levels: int
    default_priority_level: int
    default_queue_policy: QueuePolicy


class InstanceGroup(Body):
    """The lanes that run the model."""

    name: str
    kind: str = Field(examples=["KIND_GPU"])
    count: int
    gpus: list[int]
    profile: list[str]


class ModelConfiguration(Body):
    """A served model in the words of Triton's ModelConfig."""

    name: str
    platform: str
    backend: str
    version_policy: dict[str, Any]
    max_batch_size: int = Field(description="0 for a model without a batch dimension.")
    input: list[ConfigInput]
    output: list[ConfigOutput]
    dynamic_batching: DynamicBatching | None = Field(None, description="Present where requests may join.")
    instance_group: list[InstanceGroup]
    model_transaction_policy: dict[str, bool]
    response_cache: dict[str, bool]


class ModelStatisticsList(Body):
    """Statistics of model versions, as Triton's statistics extension lays them out."""

    model_stats: list[dict[str, Any]] = Field(
        description="Per version its counts and durations: `inference_stats` per request, `batch_stats` per batch size."
    )


class RepositoryIndexItem(Body):
    """One model of the repository."""

    name: str
    version: str | None = None
    state: str = Field(examples=["READY", "LOADING", "UNLOADING", "UNAVAILABLE"])
    reason: str | None = Field(None, description="Why it is not ready; left out otherwise.")


class RepositoryIndexRequest(Body):
    """Which models to list."""

    ready: bool = Field(False, description="Whether to list ready models alone.")


class RepositoryModelRequest(Body):
    """Parameters of load and unload."""

    parameters: dict[str, Any] = Field(
        default={}, description="`unload_dependents` is taken and has no effect: no model here depends on another."
    )


class RegisterRegionRequest(Body):
    """A part of a client's memory that requests may name."""

    key: str = Field(description="Name of the POSIX shared memory object.", examples=["/frames"])
    offset: int = Field(0, ge=0, description="Where in the object the region begins, in bytes.")
    byte_size: int = Field(ge=1, description="Size of the region in bytes.")


class LogSettings(Body):
    """What the server logs."""

    log_file: str = Field("", description="Always empty: the log goes to standard error.")
    log_info: bool
    log_warning: bool
    log_error: bool
    log_verbose_level: int = Field(ge=0, description="0, or 1 for debugging messages.")
    log_format: str = "default"


class TraceSettings(Body):
    """Settings of Triton's tracing, which is always off here."""

    trace_level: list[str]
    trace_rate: str
    trace_count: str
    log_frequency: str
    trace_file: str
    trace_mode: str


class ServerIndex(Body):
    """What the server is and what it serves."""

    name: str
    version: str
    is_ready: bool
    models: list[RepositoryIndexItem]
    links: dict[str, str]
