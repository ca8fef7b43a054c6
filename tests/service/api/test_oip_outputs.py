from typing import Any

import pytest

from service.api.oip_outputs import OutputReader, RequestedOutput
from service.api.oip_places import Place
from service.errors import InvalidInput
from tests.service.api.oip_models import make_spec

READER = OutputReader(
    make_spec(
        outputs={
            "a": ("FP32", ("batch", 10)),
            "b": ("INT64", ("batch",)),
            "text": ("BYTES", ("batch", 1)),
            "mask": ("BOOL", ("batch", 4)),
        }
    )
)


def out(name: str, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "parameters": parameters} if parameters else {"name": name}


@pytest.mark.parametrize(
    ("raw", "default_binary", "expected"),
    [
        ([], False, [(0, False, 0), (1, False, 0), (2, False, 0), (3, False, 0)]),
        ([], True, [(0, True, 0), (1, True, 0), (2, True, 0), (3, True, 0)]),
        ([out("b"), out("a")], False, [(0, False, 0), (1, False, 0)]),
        ([out("b")], True, [(1, True, 0)]),
        ([out("b", binary_data=False), out("a")], True, [(0, True, 0), (1, False, 0)]),
        ([out("a", binary_data=True)], False, [(0, True, 0)]),
        ([out("a", classification=3)], False, [(0, False, 3)]),
        ([out("a", classification=1, binary_data=True)], False, [(0, True, 1)]),
        ([out("a", classification=1)], True, [(0, True, 1)]),
        ([out("a", unknown=1)], False, [(0, False, 0)]),
    ],
)
def test_outputs_come_in_the_models_order(
    raw: list[Any], default_binary: bool, expected: list[tuple[int, bool, int]]
) -> None:
    outputs = READER.read(raw, default_binary=default_binary)
    assert outputs == tuple(RequestedOutput(*item) for item in expected)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (None, "'outputs' must be a JSON array, got null"),
        ({"name": "a"}, "'outputs' must be a JSON array, got an object"),
        (["a"], "each of 'outputs' must be an object with a string 'name'"),
        ([{}], "each of 'outputs' must be an object with a string 'name'"),
        ([{"name": 1}], "each of 'outputs' must be an object with a string 'name'"),
        ([out("nope")], "unexpected inference output 'nope' for model 'm'"),
        ([out("a"), out("b"), out("a")], "output 'a' already exists in request"),
        ([out("a")] * 1_000_000, "output 'a' already exists in request"),
        ([{"name": "a", "parameters": None}], "'parameters' of output 'a' must be an object, got null"),
        ([out("a", binary_data="yes")], "parameter 'binary_data' must be true or false, got a string"),
        ([out("a", classification=0)], "'classification' of output 'a' must be an integer of at least 1, got 0"),
        ([out("a", classification=-3)], "'classification' of output 'a' must be an integer of at least 1, got -3"),
        ([out("a", classification=True)], "'classification' of output 'a' must be an integer"),
        ([out("a", classification="3")], "'classification' of output 'a' must be an integer"),
        ([out("text", classification=1)], "'classification' needs numbers, but output 'text' is BYTES"),
        ([out("mask", classification=1)], "'classification' needs numbers, but output 'mask' is BOOL"),
    ],
)
def test_malformed_outputs_are_refused(raw: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        READER.read(raw, default_binary=False)


def test_an_output_goes_into_shared_memory_whatever_else_it_asks_for() -> None:
    raw = [out("a", shared_memory_region="r", shared_memory_byte_size=40, shared_memory_offset=8, binary_data=False)]
    assert READER.read(raw, default_binary=False) == (RequestedOutput(0, True, 0, Place("r", 8, 40)),)


def test_there_is_no_classification_in_shared_memory() -> None:
    raw = [out("a", shared_memory_region="r", shared_memory_byte_size=40, classification=1)]
    with pytest.raises(InvalidInput, match="output 'a' asks for a classification in shared memory"):
        READER.read(raw, default_binary=False)


@pytest.mark.parametrize(
    ("name", "rows", "nbytes", "needed"),
    [
        ("a", 1, 40, None),
        ("a", 2, 79, 80),
        ("b", 3, 23, 24),
        ("b", 3, 24, None),
        ("mask", 1, 3, 4),
        ("text", 1, 0, None),
    ],
)
def test_a_place_that_is_too_small_is_told_before_anything_runs(
    name: str, rows: int, nbytes: int, needed: int | None
) -> None:
    raw = [out(name, shared_memory_region="r", shared_memory_byte_size=nbytes, shared_memory_offset=5)]
    outputs = READER.read(raw, default_binary=False)
    if needed is None:
        READER.check_room(outputs, rows, ())
        return
    message = f"output '{name}' has {needed} bytes, but {nbytes} bytes at offset 5 of shared memory region 'r'"
    with pytest.raises(InvalidInput, match=message):
        READER.check_room(outputs, rows, ())


def test_an_output_whose_size_the_model_alone_knows_is_left_until_then() -> None:
    reader = OutputReader(make_spec(outputs={"a": ("FP32", ("batch", "found"))}))
    outputs = reader.read([out("a", shared_memory_region="r", shared_memory_byte_size=0)], default_binary=False)
    reader.check_room(outputs, 1, ())
