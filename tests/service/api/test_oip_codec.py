"""Requests and responses of any model, by property; and those of the real Triton client."""

import copy
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult

from service.api.oip_codec import InferCodec, ParsedInfer, RenderedInfer
from service.api.oip_places import Place
from service.bfloat16 import bfloat16_values
from service.errors import ServiceError
from service.models import ModelSpec
from service.tensors import Dim, DType, HostArray, TensorSpec
from tests.service.api.oip_models import Tensors, binary_body, make_spec, tensor_json, wire_elements

REFUSALS = (400, 501)
SIZES = (1, 2, 4)


@dataclass(frozen=True)
class Case:
    """A model that returns its inputs, and arrays that it takes."""

    spec: ModelSpec
    arrays: tuple[HostArray, ...]
    rows: int
    dims: tuple[int, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    has_batch_dim = draw(st.booleans())
    lead: tuple[Dim, ...] = ("batch",) if has_batch_dim else ()
    dim = st.one_of(st.integers(1, 3), st.sampled_from(["h", "w"]))
    tensors = draw(st.lists(st.tuples(st.sampled_from(DType), st.lists(dim, max_size=2)), min_size=1, max_size=3))
    inputs: Tensors = {f"x{i}": (dtype.value, (*lead, *dims)) for i, (dtype, dims) in enumerate(tensors)}
    used = {dim for _, dims in tensors for dim in dims if isinstance(dim, str)}
    bucketed = sorted(name for name in used if draw(st.booleans()))
    spec = make_spec(
        inputs,
        {name.replace("x", "y"): tensor for name, tensor in inputs.items()},
        max_batch_size=8 if has_batch_dim else 0,
        bucket_sizes={name: SIZES for name in bucketed},
    )
    rows = draw(st.integers(1, 8)) if has_batch_dim else 1
    dims = tuple(draw(st.integers(1, SIZES[-1])) for _ in spec.buckets.dim_names)
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    sizes = spec.dim_sizes(dims, rows)
    return Case(spec, tuple(random_array(rng, t.dtype, t.resolve(sizes)) for t in spec.inputs), rows, dims)


def random_array(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> HostArray:
    """Any finite values; BYTES are UTF-8, so that they may travel as JSON."""
    count = int(np.prod(shape))
    if dtype is DType.BYTES:
        array = np.empty(count, dtype=object)
        array[:] = ["".join(rng.choice(list("aß\0€"), rng.integers(0, 4))).encode() for _ in range(count)]
        return array.reshape(shape)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    bits = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype.numpy).reshape(shape)
    if dtype is DType.BF16:
        return np.where(np.isfinite(bfloat16_values(bits)), bits, np.uint16(0))
    return np.where(np.isfinite(bits), bits, dtype.numpy.type(0))


def as_json(array: HostArray, dtype: DType, *, nested: bool) -> Any:
    values = bfloat16_values(array) if dtype is DType.BF16 else array
    data = values.tolist() if nested and values.ndim else values.reshape(-1).tolist()
    return json.loads(json.dumps(data, default=bytes.decode))


def as_binary(array: HostArray, dtype: DType) -> bytes:
    return wire_elements(*array.reshape(-1).tolist()) if dtype is DType.BYTES else array.tobytes()


def build_request(draw: st.DrawFn, case: Case) -> tuple[dict[str, Any], list[bytes]]:
    """The case's arrays as inputs in any order, each in any form; and any choice of outputs."""
    inputs: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for index in draw(st.permutations(range(len(case.arrays)))):
        tensor, array = case.spec.inputs[index], case.arrays[index]
        form = draw(st.sampled_from(["binary", "flat", "nested"]))
        if form == "binary":
            parts.append(as_binary(array, tensor.dtype))
            more: dict[str, Any] = {"size": len(parts[-1])}
        else:
            more = {"data": as_json(array, tensor.dtype, nested=form == "nested")}
        inputs.append(tensor_json(tensor.name, tensor.dtype.value, array.shape, **more))
    output = st.sampled_from(case.spec.outputs)
    outputs = [
        {"name": tensor.name, "parameters": {"binary_data": draw(st.booleans())}}
        for tensor in draw(st.lists(output, unique=True))
    ]
    parameters = {"binary_data_output": draw(st.booleans())}
    return {"id": draw(st.text(max_size=3)), "inputs": inputs, "outputs": outputs, "parameters": parameters}, parts


def assert_same(array: HostArray, expected: HostArray) -> None:
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    assert array.flags.c_contiguous
    assert array.tolist() == expected.tolist()


def read_output(entry: dict[str, Any], tensor: TensorSpec, part: bytes) -> HostArray:
    """What a client makes of one output: written apart from the server's own code."""
    assert (entry["name"], entry["datatype"]) == (tensor.name, tensor.dtype.value)
    if "parameters" not in entry:
        if tensor.dtype is DType.BF16:
            widened = np.array(entry["data"], dtype=np.float32)
            return (widened.view(np.uint32) >> 16).astype(np.uint16).reshape(entry["shape"])
        data = [text.encode() for text in entry["data"]] if tensor.dtype is DType.BYTES else entry["data"]
        array = np.empty(len(data), dtype=tensor.dtype.numpy)
        array[:] = data
        return array.reshape(entry["shape"])
    if tensor.dtype is DType.BYTES:
        elements = []
        while part:
            end = 4 + int.from_bytes(part[:4], "little")
            elements.append(part[4:end])
            part = part[end:]
        array = np.empty(len(elements), dtype=object)
        array[:] = elements
        return array.reshape(entry["shape"])
    return np.frombuffer(part, dtype=tensor.dtype.numpy).reshape(entry["shape"])


@given(st.data())
def test_any_request_and_its_response_survive_the_round_trip(data: st.DataObject) -> None:
    case = data.draw(cases())
    codec = InferCodec(case.spec)
    document, parts = build_request(data.draw, case)
    body, header_length = binary_body(document, *parts)
    parsed = codec.parse(body, header_length)
    for array, expected in zip(parsed.inputs, case.arrays, strict=True):
        assert_same(array, expected)
    assert (parsed.rows, parsed.dims, parsed.request_id) == (case.rows, case.dims, document["id"])
    assert parsed.nbytes == sum(
        len(as_binary(array, tensor.dtype)) for array, tensor in zip(case.arrays, case.spec.inputs, strict=True)
    )
    rendered = codec.render(parsed, [case.arrays[output.index] for output in parsed.outputs])
    assert_response(case, document, parsed, rendered)


def assert_response(case: Case, document: dict[str, Any], parsed: ParsedInfer, rendered: RenderedInfer) -> None:
    body = b"".join(rendered.chunks)
    length = len(body) if rendered.header_length is None else rendered.header_length
    response, tail = json.loads(body[:length]), body[length:]
    wanted = {item["name"]: item["parameters"]["binary_data"] for item in document["outputs"]}
    if not wanted:
        wanted = dict.fromkeys([t.name for t in case.spec.outputs], document["parameters"]["binary_data_output"])
    names = [tensor.name for tensor in case.spec.outputs if tensor.name in wanted]
    assert [entry["name"] for entry in response["outputs"]] == names
    assert response.get("id", "") == document["id"]
    for entry, output in zip(response["outputs"], parsed.outputs, strict=True):
        assert ("parameters" in entry) == wanted[entry["name"]] == ("data" not in entry)
        size = entry["parameters"]["binary_data_size"] if "parameters" in entry else 0
        tensor = case.spec.outputs[output.index]
        assert_same(read_output(entry, tensor, tail[:size]), case.arrays[output.index])
        tail = tail[size:]
    assert not tail
    assert (rendered.header_length is None) == (rendered.content_type == b"application/json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 64), 1 << 65) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3) | st.sampled_from(["x0", "y0", "FP32", "BYTES"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "shape", "datatype", "data", "parameters", "binary_data_size", "inputs", "outputs"]),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


def parse_or_refuse(codec: InferCodec, body: bytes, header_length: int | None) -> ParsedInfer | None:
    """The parsed request, or None where it is refused as the client's fault."""
    try:
        return codec.parse(body, header_length)
    except ServiceError as error:
        refusal = error
    assert refusal.status in REFUSALS
    assert 0 < len(refusal.message) < 2000
    return None


def assert_consistent(spec: ModelSpec, parsed: ParsedInfer) -> None:
    sizes = spec.dim_sizes(parsed.dims, parsed.rows)
    assert 1 <= parsed.rows <= spec.buckets.max_size
    assert spec.buckets.padded_dims(parsed.dims) is not None
    for array, tensor in zip(parsed.inputs, spec.inputs, strict=True):
        assert (array.dtype, array.shape) == (tensor.dtype.numpy, tensor.resolve(sizes))


@given(st.data())
def test_a_request_with_one_value_exchanged_is_refused_or_consistent(data: st.DataObject) -> None:
    case = data.draw(cases())
    codec = InferCodec(case.spec)
    document, parts = build_request(data.draw, case)
    mutated = copy.deepcopy(document)
    node: Any = mutated
    while True:
        key = data.draw(st.sampled_from(sorted(node)) if type(node) is dict else st.integers(0, len(node) - 1))
        child = node[key]
        if type(child) not in (dict, list) or not child or data.draw(st.integers(0, 2)) == 0:
            break
        node = child
    if type(node) is dict and data.draw(st.booleans()):
        del node[key]
    else:
        node[key] = data.draw(JSON)
    body, header_length = binary_body(mutated, *parts)
    parsed = parse_or_refuse(codec, body, header_length)
    if parsed is not None:
        assert_consistent(case.spec, parsed)


@given(st.data())
def test_a_truncated_or_extended_body_is_refused(data: st.DataObject) -> None:
    case = data.draw(cases())
    codec = InferCodec(case.spec)
    document, parts = build_request(data.draw, case)
    body, header_length = binary_body(document, *parts)
    cut = data.draw(st.integers(0, len(body) - 1))
    assert parse_or_refuse(codec, body[:cut], header_length) is None
    assert parse_or_refuse(codec, body + data.draw(st.binary(min_size=1, max_size=5)), header_length) is None


@given(cases(), st.binary(max_size=60), st.none() | st.integers(-2, 70))
def test_arbitrary_bytes_are_refused_or_consistent(case: Case, body: bytes, header_length: int | None) -> None:
    parsed = parse_or_refuse(InferCodec(case.spec), body, header_length)
    if parsed is not None:
        assert header_length == 0, "only a raw binary request can be made of noise"
        assert_consistent(case.spec, parsed)


@given(cases(), JSON)
def test_arbitrary_json_is_refused(case: Case, document: Any) -> None:
    assert parse_or_refuse(InferCodec(case.spec), json.dumps(document).encode(), None) is None


CLIENT_DTYPES = [dtype for dtype in DType if dtype is not DType.BF16]


def client_spec() -> ModelSpec:
    """Every datatype that the client makes from NumPy arrays, in and out."""
    inputs: Tensors = {dtype.value: (dtype.value, ("batch", 2)) for dtype in CLIENT_DTYPES}
    return make_spec(inputs, {f"{name}_OUT": tensor for name, tensor in inputs.items()}, labels=("cat", "dog"))


def client_inputs(rng: np.random.Generator, *, binary: bool) -> tuple[list[InferInput], list[HostArray]]:
    arrays = [random_array(rng, dtype, (3, 2)) for dtype in CLIENT_DTYPES]
    inputs = []
    for dtype, array in zip(CLIENT_DTYPES, arrays, strict=True):
        infer_input = InferInput(dtype.value, [3, 2], dtype.value)
        infer_input.set_data_from_numpy(array, binary_data=binary)
        inputs.append(infer_input)
    return inputs, arrays


def client_result(rendered: RenderedInfer) -> InferResult:
    return InferenceServerClient.parse_response_body(b"".join(rendered.chunks), header_length=rendered.header_length)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_the_triton_client_is_understood_and_understands(binary_in: bool, binary_out: bool | None) -> None:
    spec = client_spec()
    codec = InferCodec(spec)
    inputs, arrays = client_inputs(np.random.default_rng(7), binary=binary_in)
    outputs = None
    if binary_out is not None:
        outputs = [InferRequestedOutput(tensor.name, binary_data=binary_out) for tensor in spec.outputs]
    body, header_length = InferenceServerClient.generate_request_body(
        inputs, outputs, request_id="rq-7", priority=2, timeout=5, parameters={"tenant": "a"}
    )
    parsed = codec.parse(body, header_length)
    for array, expected in zip(parsed.inputs, arrays, strict=True):
        assert_same(array, expected)
    assert (parsed.rows, parsed.priority, parsed.timeout_ns, dict(parsed.parameters)) == (3, 2, 5000, {"tenant": "a"})
    result = client_result(codec.render(parsed, parsed.inputs))
    assert result.get_response()["id"] == "rq-7"
    for dtype, expected in zip(CLIENT_DTYPES, arrays, strict=True):
        received = result.as_numpy(f"{dtype.value}_OUT")
        texts_expected = dtype is DType.BYTES and binary_out is False
        assert received.tolist() == (as_json(expected, dtype, nested=True) if texts_expected else expected.tolist())
        assert received.shape == (3, 2)


@pytest.mark.parametrize("binary", [True, False])
def test_the_triton_client_reads_classifications(binary: bool) -> None:
    codec = InferCodec(client_spec())
    inputs, _ = client_inputs(np.random.default_rng(7), binary=True)
    outputs = [InferRequestedOutput("FP32_OUT", binary_data=binary, class_count=3)]
    body, header_length = InferenceServerClient.generate_request_body(inputs, outputs)
    parsed = codec.parse(body, header_length)
    result = client_result(codec.render(parsed, [np.array([[1, 2], [4, 3], [5, 5]], dtype=np.float32)]))
    received = result.as_numpy("FP32_OUT").tolist()
    texts = [[item if isinstance(item, str) else item.decode() for item in row] for row in received]
    assert texts == [
        ["2.000000:1:dog", "1.000000:0:cat"],
        ["4.000000:0:cat", "3.000000:1:dog"],
        ["5.000000:0:cat", "5.000000:1:dog"],
    ]


@pytest.mark.parametrize("is_input", [True, False])
def test_shared_memory_of_the_triton_client_is_refused_where_it_is_off(is_input: bool) -> None:
    infer_input, output = InferInput("x", [1, 3], "FP32"), InferRequestedOutput("y")
    infer_input.set_data_from_numpy(np.zeros((1, 3), np.float32))
    (infer_input if is_input else output).set_shared_memory("region", 12)
    body, header_length = InferenceServerClient.generate_request_body([infer_input], [output])
    with pytest.raises(ServiceError, match="SYSTEM_SHARED_MEMORY_ENABLED=true") as caught:
        InferCodec(make_spec()).parse(body, header_length)
    assert caught.value.status == 501


def test_shared_memory_of_the_triton_client() -> None:
    infer_input, output = InferInput("x", [1, 3], "FP32"), InferRequestedOutput("y")
    infer_input.set_shared_memory("region", 12, offset=4)
    output.set_shared_memory("region", 12)
    body, header_length = InferenceServerClient.generate_request_body([infer_input], [output])
    codec = InferCodec(make_spec())
    begun = codec.begin(body, header_length)
    assert begun.is_shared
    assert [header.place for header in begun.inputs] == [Place("region", 4, 12)]
    parsed = codec.finish(begun, [memoryview(np.arange(3, dtype=np.float32).tobytes())])
    assert parsed.inputs[0].tolist() == [[0.0, 1.0, 2.0]]
    rendered = codec.render(parsed, [np.ones((1, 3), np.float32)])
    assert [(place, bytes(data)) for place, data in rendered.shared] == [
        (Place("region", 0, 12), np.ones(3, np.float32).tobytes())
    ]
    assert rendered.header_length is None
    told = client_result(rendered).get_output("y")
    assert told["parameters"] == {
        "binary_data_size": 0,
        "shared_memory_region": "region",
        "shared_memory_offset": 0,
        "shared_memory_byte_size": 12,
    }
    assert "data" not in told
