"""Bodies of inference requests and answers, for the OpenAPI document alone: the hot route never touches pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from service.api.schemas import Body

TensorData = list[Any]


class InferInput(Body):
    """One input tensor."""

    name: str
    shape: list[int] = Field(description="Extents, the batch dimension included.")
    datatype: str = Field(description="The model's own, see its metadata.")
    data: TensorData | None = Field(None, description="Elements in row-major order, flat or nested; or else binary.")
    parameters: dict[str, Any] = Field(
        default={}, description="`binary_data_size`: bytes of this tensor behind the JSON, instead of `data`."
    )


class InferOutputWanted(Body):
    """One output that the client wants."""

    name: str
    parameters: dict[str, Any] = Field(
        default={}, description="`binary_data`: answer in binary; `classification`: the k largest values by name."
    )


class InferRequest(Body):
    """The JSON part of an inference request."""

    id: str = Field("", description="Returned with the answer.")
    parameters: dict[str, Any] = Field(
        default={},
        description=(
            "`priority` (1 is the most urgent), `timeout` (microseconds that the request may wait), "
            "`binary_data_output` (all outputs in binary unless they say otherwise); others are the client's own."
        ),
    )
    inputs: list[InferInput]
    outputs: list[InferOutputWanted] = Field(default=[], description="All outputs if empty.")


class InferOutput(Body):
    """One output tensor."""

    name: str
    datatype: str
    shape: list[int]
    data: TensorData | None = Field(None, description="Elements in row-major order, flat; absent if binary.")
    parameters: dict[str, int] | None = Field(None, description="`binary_data_size`, where the tensor is binary.")


class InferAnswer(Body):
    """The JSON part of an inference answer."""

    id: str | None = None
    model_name: str
    model_version: str
    outputs: list[InferOutput]
