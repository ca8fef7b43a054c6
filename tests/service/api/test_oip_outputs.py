from typing import Any

import pytest

from service.api.oip_outputs import OutputReader, RequestedOutput
from service.errors import InvalidInput, Unsupported
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


def test_shared_memory_names_the_alternative() -> None:
    with pytest.raises(Unsupported, match=r"shared memory region, which this server does not offer; .*binary_data"):
        READER.read([out("a", shared_memory_region="r", shared_memory_byte_size=4)], default_binary=False)
