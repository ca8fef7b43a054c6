"""The enums of the TensorRT double, by the names that TensorRT gives their members."""

from __future__ import annotations

from enum import Enum


class DataType(Enum):
    FLOAT = 0
    HALF = 1
    INT8 = 2
    INT32 = 3
    BOOL = 4
    UINT8 = 5
    FP8 = 6
    BF16 = 7
    INT64 = 8


class TensorIOMode(Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class TensorLocation(Enum):
    DEVICE = 0
    HOST = 1


class ExecutionContextAllocationStrategy(Enum):
    STATIC = 0
    ON_PROFILE_CHANGE = 1
    USER_MANAGED = 2


class LayerInformationFormat(Enum):
    ONELINE = 0
    JSON = 1


class ErrorCode(Enum):
    INVALID_ARGUMENT = 3
    INVALID_STATE = 9
