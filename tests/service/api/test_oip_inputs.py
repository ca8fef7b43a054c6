from typing import Any

import pytest

from service.api.oip_inputs import InputReader
from service.api.oip_places import Place
from service.cards import ShapeRange
from service.errors import InvalidInput
from tests.service.api.oip_models import make_spec, tensor_json, x_json

ONE = InputReader(make_spec())
TEXT = InputReader(
    make_spec(
        {"ids": ("INT64", ("batch", "sequence")), "mask": ("INT64", ("batch", "sequence"))},
        bucket_sizes={"sequence": (16, 64)},
    )
)
EXACT = InputReader(make_spec({"x": ("FP32", ("batch", "n"))}))
NO_BATCH = InputReader(make_spec({"x": ("FP32", ("h", 2))}, {"y": ("FP32", (1,))}, max_batch_size=0))
PROFILED = InputReader(
    make_spec(
        {"x": ("FP32", ("batch", "n"))},
        profiles=({"x": ShapeRange((1, 4), (4, 8), (8, 16))},),
    )
)


def ids(rows: int, length: int, name: str = "ids") -> dict[str, Any]:
    return tensor_json(name, "INT64", [rows, length], size=8 * rows * length)


def x(shape: list[Any], datatype: str = "FP32", name: str = "x") -> dict[str, Any]:
    return tensor_json(name, datatype, shape, data=[])


@pytest.mark.parametrize(
    ("reader", "raw", "rows", "dims"),
    [
        (ONE, [x_json(1)], 1, ()),
        (ONE, [x_json(8)], 8, ()),
        (TEXT, [ids(2, 5), ids(2, 5, "mask")], 2, (5,)),
        (TEXT, [ids(2, 64, "mask"), ids(2, 64)], 2, (64,)),
        (EXACT, [tensor_json("x", "FP32", [2, 100_000], size=1)], 2, (100_000,)),
        (NO_BATCH, [tensor_json("x", "FP32", [100, 2], size=1)], 1, (100,)),
    ],
)
def test_rows_and_dims_are_measured(reader: InputReader, raw: list[Any], rows: int, dims: tuple[int, ...]) -> None:
    inputs = reader.read(raw)
    assert (inputs.rows, inputs.dims) == (rows, dims)


def test_headers_keep_the_requests_order_and_say_where_the_data_is() -> None:
    inputs = TEXT.read([ids(1, 4, "mask"), tensor_json("ids", "INT64", [1, 4], data=[1, 2, 3, 4])])
    assert [(h.index, h.shape, h.data, h.binary_bytes) for h in inputs.headers] == [
        (1, (1, 4), None, 32),
        (0, (1, 4), [1, 2, 3, 4], None),
    ]


@pytest.mark.parametrize(
    ("reader", "raw", "message"),
    [
        (ONE, None, "must have 'inputs', a JSON array of tensors; got null"),
        (ONE, {}, "must have 'inputs', a JSON array of tensors; got an object"),
        (ONE, [], "expected 1 inputs but got 0 inputs for model 'm'; missing: \\['x'\\]"),
        (TEXT, [ids(1, 4)], "expected 2 inputs but got 1 inputs for model 'm'; missing: \\['mask'\\]"),
        (ONE, [x_json(), x_json()], "input 'x' already exists in request"),
        (ONE, ["x"], "each of 'inputs' must be an object with a string 'name'"),
        (ONE, [{"name": 3}], "each of 'inputs' must be an object with a string 'name'"),
        (ONE, [x([1, 3], name="q")], "unexpected inference input 'q' for model 'm'; it has \\['x'\\]"),
        (ONE, [x([1, 3], name="q" * 9999)], "unexpected inference input 'q{100}\\.\\.\\.' "),
        (ONE, [x([1, 3], "FP64")], "inference input 'x' data-type is 'FP64', but model 'm' expects 'FP32'"),
        (ONE, [x([1, 3], "FLOAT")], "invalid datatype for input x: got 'FLOAT', .* 'FP32'"),
        (ONE, [{"name": "x", "shape": [1, 3], "data": []}], "invalid datatype for input x: got null"),
        (ONE, [{"name": "x", "datatype": ["FP32"], "shape": [1, 3]}], "invalid datatype for input x: got an array"),
        (
            ONE,
            [{"name": "x", "datatype": "FP32", "data": []}],
            "input 'x' must have 'shape', a JSON array of integers; got null",
        ),
        (
            ONE,
            [{"name": "x", "datatype": "FP32", "shape": 3}],
            "input 'x' must have 'shape', a JSON array of integers; got 3",
        ),
        (ONE, [x([3])], r"unexpected shape for input 'x' for model 'm'. Expected \[-1,3\], got \[3\]"),
        (ONE, [x([1, 4])], r"Expected \[-1,3\], got \[1,4\]"),
        (ONE, [x([1, 3, 1])], r"Expected \[-1,3\], got \[1,3,1\]"),
        (ONE, [x([7] * 100_000)], r"Expected \[-1,3\], got \[7,(7,){15}\.\.\.\]"),
        (ONE, [x([])], r"Expected \[-1,3\], got \[\]"),
        (ONE, [x([-1, 3])], r"got \[-1,3\]; every dimension must be an integer of at least 1"),
        (ONE, [x([0, 3])], r"got \[0,3\]; every dimension must be an integer of at least 1"),
        (EXACT, [x([1, 0])], r"got \[1,0\]; every dimension must be an integer of at least 1"),
        (ONE, [x([True, 3])], r"got \[true/false,3\]; every dimension must be an integer"),
        (ONE, [x([1.0, 3])], r"got \[1\.0,3\]; every dimension must be an integer"),
        (ONE, [x_json(9)], "inference request batch-size must be <= 8 for 'm', got 9"),
        (ONE, [x([(1 << 63) - 1, 3])], "inference request batch-size must be <= 8 for 'm'"),
        (
            TEXT,
            [ids(1, 65), ids(1, 65, "mask")],
            r"Expected \[-1,-1\], got \[1,65\]; the largest size of dimension 'sequence' is 64",
        ),
        (
            TEXT,
            [ids(1, (1 << 63) - 1), ids(1, (1 << 63) - 1, "mask")],
            "the largest size of dimension 'sequence' is 64",
        ),
        (TEXT, [ids(2, 5), ids(3, 5, "mask")], "the batch size is 3 in input 'mask' but 2 in an earlier input"),
        (TEXT, [ids(2, 5), ids(2, 6, "mask")], "dimension 'sequence' is 6 in input 'mask' but 5 in an earlier input"),
        (PROFILED, [x([1, 17])], r"its profiles allow min \[1,4\] opt \[4,8\] max \[8,16\]"),
        (PROFILED, [x([1, 1, 1])], r"got \[1,1,1\]; its profiles allow min \[1,4\]"),
        (NO_BATCH, [x([1, 3])], r"Expected \[-1,2\], got \[1,3\]"),
    ],
)
def test_inputs_that_contradict_the_model_are_refused(reader: InputReader, raw: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        reader.read(raw)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "must set exactly one of 'data', 'binary_data_size' and 'shared_memory_region', got none"),
        ({"data": [], "size": 12}, r"must set exactly one of .*, got \['binary_data_size', 'data'\]"),
        ({"data": [], "parameters": {"shared_memory_region": "r"}}, r"got \['shared_memory_region', 'data'\]"),
        ({"parameters": {"shared_memory_region": "r", "binary_data_size": 12}}, r"got \['binary_data_size', 'shared"),
        ({"data": [], "parameters": {"shared_memory_offset": 4}}, "sets 'shared_memory_offset' without"),
        ({"parameters": []}, "'parameters' of input 'x' must be an object, got an array"),
        ({"size": -1}, "'binary_data_size' of input 'x' must be a non-negative integer, got -1"),
        ({"size": None}, "'binary_data_size' of input 'x' must be a non-negative integer, got null"),
        ({"size": True}, "'binary_data_size' of input 'x' must be a non-negative integer, got true/false"),
        ({"size": 12.0}, "'binary_data_size' of input 'x' must be a non-negative integer, got 12.0"),
    ],
)
def test_data_lies_in_exactly_one_place(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        ONE.read([tensor_json("x", "FP32", [1, 3], **more)])


def test_data_lies_in_shared_memory() -> None:
    parameters = {"shared_memory_region": "r", "shared_memory_byte_size": 12}
    (header,) = ONE.read([tensor_json("x", "FP32", [1, 3], parameters=parameters)]).headers
    assert (header.place, header.binary_bytes, header.data) == (Place("r", 0, 12), 12, None)
