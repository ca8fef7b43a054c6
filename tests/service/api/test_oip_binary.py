import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.oip_binary import array_from_binary, binary_from_array, bytes_array, locate_parts, raw_shape
from service.api.oip_inputs import InputHeader
from service.errors import InvalidInput
from service.tensors import Dim, DType, TensorSpec
from tests.service.api.oip_models import wire_elements


def header(shape: tuple[int, ...], size: int | None, dtype: DType = DType.FP32, name: str = "x") -> InputHeader:
    return InputHeader(0, TensorSpec(name, dtype, shape), shape, None if size is not None else [], size)


def test_parts_follow_one_another_in_the_requests_order() -> None:
    headers = [header((3,), 12), header((2,), None), header((2, 2), 4, DType.INT8), header((1,), 5, DType.BYTES)]
    assert locate_parts(headers, start=100, end=121, model="m") == [100, 112, 112, 116]


@pytest.mark.parametrize(
    ("headers", "end", "message"),
    [
        ([header((3,), 12)], 111, "unexpected size for input 'x', expecting 1 additional bytes for model 'm'$"),
        ([header((3,), 12)], 108, "unexpected size for input 'x', expecting 4 additional bytes for model 'm'$"),
        (
            [header((3,), 12)],
            100,
            "expecting 12 additional bytes for model 'm'; nothing follows the JSON: is Inference-",
        ),
        ([header((3,), 12)], 113, "unexpected additional input data for model 'm': 1 bytes follow the last input"),
        ([], 101, "unexpected additional input data for model 'm'"),
        ([header((3,), 8)], 108, "input byte size mismatch for input 'x' for model 'm'. Expected 12, got 8"),
        ([header((3,), 0)], 100, "input byte size mismatch for input 'x' for model 'm'. Expected 12, got 0"),
        ([header((1, (1 << 63) - 1), 8, DType.FP64)], 108, f"Expected {((1 << 63) - 1) * 8}, got 8"),
        ([header((1 << 40, 1 << 40), 8, DType.FP64)], 108, f"Expected {8 << 80}, got 8"),
        ([header((3,), 11, DType.BYTES)], 111, "expected 3 string elements for input 'x' .*, got 11 bytes"),
        ([header((1 << 60,), 8, DType.BYTES)], 108, f"expected {1 << 60} string elements"),
    ],
)
def test_sizes_are_held_against_shapes_and_body(headers: list[InputHeader], end: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        locate_parts(headers, start=100, end=end, model="m")


def test_arrays_are_read_only_views_on_the_body_at_any_offset() -> None:
    values = np.arange(6, dtype="<f4").reshape(2, 3)
    body = bytearray(b"jso" + values.tobytes())
    array = array_from_binary(memoryview(body).toreadonly(), 3, header((2, 3), 24))
    np.testing.assert_array_equal(array, values)
    assert not array.flags.writeable
    assert array.flags.c_contiguous
    body[3:7] = np.float32(99).tobytes()
    assert array[0, 0] == 99


def test_bool_bytes_are_zero_or_one() -> None:
    good = array_from_binary(memoryview(b"\x01\x00"), 0, header((2,), 2, DType.BOOL))
    assert good.tolist() == [True, False]
    with pytest.raises(InvalidInput, match="input 'x' is BOOL: each byte must be 0 or 1"):
        array_from_binary(memoryview(b"\x01\x02"), 0, header((2,), 2, DType.BOOL))


def test_bytes_elements_carry_their_length() -> None:
    assert wire_elements(b"abc", b"") == bytes.fromhex("0300000061626300000000")
    part = b"json" + wire_elements(b"abc", b"") + b"next"
    array = array_from_binary(memoryview(part), 4, header((2, 1), 11, DType.BYTES))
    assert array.tolist() == [[b"abc"], [b""]]


@pytest.mark.parametrize(
    ("part", "count", "message"),
    [
        (wire_elements(b"abcdefgh"), 2, "expected 2 string elements for input 'x', got 1"),
        (wire_elements(b"a", b"b", b"c"), 2, "expected 2 string elements for input 'x', got more: 5 bytes follow"),
        (wire_elements(b"a") + b"\x00", 3, "incomplete string length indicator for input 'x': expected 4 bytes, got 1"),
        (b"\x05\x00\x00\x00abc", 1, "incomplete string data for input 'x': expected a string of 5 bytes, got 3"),
        (b"\xff\xff\xff\xffabc", 1, "incomplete string data for input 'x': expected a string of 4294967295 bytes"),
        (b"", 1, "expected 1 string elements for input 'x', got 0"),
    ],
)
def test_malformed_elements_are_refused(part: bytes, count: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        array_from_binary(memoryview(part), 0, header((count,), len(part), DType.BYTES))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=9))
def test_elements_survive_the_round_trip(elements: list[bytes]) -> None:
    part = binary_from_array(bytes_array(elements, (len(elements),)), DType.BYTES)
    assert part == wire_elements(*elements)
    array = array_from_binary(memoryview(part), 0, header((len(elements),), len(part), DType.BYTES))
    assert array.tolist() == elements


@given(st.binary(max_size=40), st.integers(1, 4))
def test_arbitrary_elements_are_refused_or_exact(part: bytes, count: int) -> None:
    try:
        array = array_from_binary(memoryview(part), 0, header((count,), len(part), DType.BYTES))
    except InvalidInput:
        return
    assert wire_elements(*array.tolist()) == part


@pytest.mark.parametrize("shape", [(2, 3), (), (0, 4), (1,)])
@pytest.mark.parametrize("dtype", [dtype for dtype in DType if dtype is not DType.BYTES])
def test_numbers_go_out_as_they_lie_in_memory(shape: tuple[int, ...], dtype: DType) -> None:
    array = np.ones(shape, dtype=dtype.numpy)
    part = binary_from_array(array, dtype)
    assert bytes(part) == array.tobytes()
    assert len(part) == array.nbytes


@pytest.mark.parametrize(
    ("dtype", "dims", "size", "has_batch_dim", "shape"),
    [
        (DType.FP32, ("batch", 3), 12, True, [1, 3]),
        (DType.FP32, ("batch",), 4, True, [1]),
        (DType.FP32, ("batch", "n", 2), 24, True, [1, 3, 2]),
        (DType.UINT8, ("n",), 7, False, [7]),
        (DType.UINT8, (2, "n"), 6, False, [2, 3]),
        (DType.BYTES, ("batch", 1), 9, True, [1, 1]),
        (DType.BYTES, ("batch", "n"), 9, True, [1, 1]),
        (DType.BYTES, ("n", "k"), 9, False, [1, 1]),
    ],
)
def test_raw_shape_comes_from_the_size(
    dtype: DType, dims: tuple[Dim, ...], size: int, has_batch_dim: bool, shape: list[int]
) -> None:
    assert raw_shape(TensorSpec("x", dtype, dims), size, has_batch_dim=has_batch_dim) == shape


@pytest.mark.parametrize(
    ("dtype", "dims", "size", "message"),
    [
        (DType.FP32, ("batch", "n", "k"), 24, "has more than one variable dimension besides the batch"),
        (DType.FP32, ("batch", 3), 11, "Expected 12, got 11"),
        (DType.FP32, ("batch", 3), 24, "Expected 12, got 24"),
        (DType.FP32, ("batch", "n", 3), 13, "Expected a multiple of 12, got 13"),
        (DType.BYTES, ("batch", 2), 9, r"holds one BYTES element, but input 'x' has shape \[-1,2\]"),
    ],
)
def test_raw_size_that_makes_no_shape_is_refused(dtype: DType, dims: tuple[Dim, ...], size: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        raw_shape(TensorSpec("x", dtype, dims), size, has_batch_dim=True)
