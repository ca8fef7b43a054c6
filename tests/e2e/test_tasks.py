"""Tasks behind the real server: texts to vectors, images to boxes, on models made for the test and on MiniLM."""

from __future__ import annotations

import asyncio
import shutil

import cv2
import httpx
import numpy as np
import pytest

from engines.demo.layout import lay_out_embedder
from tests.doubles import onnx_models
from tests.doubles.demo_server import ROOT
from tests.doubles.running_server import RunningServer, StartServer, add_model
from tests.service.pipeline.tokenizers_and_models import tokenizer_json

pytestmark = pytest.mark.e2e

MINILM = ROOT.parent / "shared" / "models" / "minilm"
TEXTS = ["red", "red green blue light", "blue", "light light", "red green blue light red green blue light red"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, start_server: StartServer) -> RunningServer:
    """`words` pools vectors of tokens, `whole` takes the model's own pooled output; `boxes` detects."""
    repository = tmp_path_factory.mktemp("tasks")
    sizes = "[buckets]\nbatch = [1, 4]\nsequence = [4, 8, 16]\n"
    text = f'task = "embed"\n[text]\ntokenizer = "tokenizer.json"\n{sizes}'
    add_model(repository, "words", onnx_models.make_sequence, f'{text}[pooling]\noutput = "tokens"\n')
    add_model(
        repository, "whole", onnx_models.make_sequence, f'{text}[pooling]\noutput = "embedding"\nnormalize = true\n'
    )
    for name in ("words", "whole"):
        (repository / name / "tokenizer.json").write_bytes(tokenizer_json())
    add_model(
        repository,
        "boxes",
        onnx_models.make_detector,
        'task = "detect"\nlabels = ["cat", "dog"]\n[preprocess]\nresize = "letterbox"\n[buckets]\nbatch = [1, 4]\n',
    )
    return start_server(repository)


def embed(server: RunningServer, model: str, texts: str | list[str]) -> list[dict]:
    with server.client() as client:
        response = client.post(f"/v2/models/{model}/predict", json={"text": texts})
    assert response.status_code == 200, response.text
    return response.json()["results"]


def vectors(server: RunningServer, model: str, texts: list[str]) -> np.ndarray:
    return np.array([result["embedding"] for result in embed(server, model, texts)])


def test_vectors_of_tokens_are_pooled_as_the_model_itself_pools_them(server):
    found = vectors(server, "words", TEXTS)
    assert found.shape == (len(TEXTS), onnx_models.HIDDEN)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found, vectors(server, "whole", TEXTS), rtol=1e-4, atol=1e-6)


def test_a_text_has_one_vector_whatever_comes_with_it(server):
    together = vectors(server, "words", TEXTS)
    alone = np.concatenate([vectors(server, "words", [text]) for text in TEXTS])
    np.testing.assert_allclose(together, alone, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(vectors(server, "words", TEXTS[0]), alone[:1])


def test_texts_of_several_clients_share_batches(server):
    async def at_once() -> list[httpx.Response]:
        async with server.async_client() as client:
            requests = (client.post("/v2/models/words/predict", json={"text": text}) for text in TEXTS * 10)
            return await asyncio.gather(*requests)

    before = server.metric("nv_inference_exec_count", model="words")
    responses = asyncio.run(at_once())
    assert [response.status_code for response in responses] == [200] * len(responses)
    assert server.metric("nv_inference_exec_count", model="words") - before < len(responses)


def test_a_long_text_is_cut(server):
    (result,) = embed(server, "words", "red " * 40)
    assert (result["tokens"], result["truncated"]) == (16, True)


@pytest.mark.parametrize(
    ("content", "content_type", "status", "says"),
    [
        (b'{"text": []}', "application/json", 400, "0 texts"),
        (b'{"text": "red"}', "text/plain", 415, "application/json"),
        (b"\x89PNG", "application/json", 400, "no JSON"),
    ],
)
def test_what_is_no_text_is_refused(server, content, content_type, status, says):
    with server.client() as client:
        response = client.post("/v2/models/words/predict", content=content, headers={"Content-Type": content_type})
    assert response.status_code == status
    assert says in response.json()["error"]


def picture(height: int, width: int, value: int) -> bytes:
    is_written, buffer = cv2.imencode(".png", np.full((height, width, 3), value, np.uint8))
    assert is_written
    return buffer.tobytes()


def detect(server: RunningServer, query: str = "", **request: object) -> list[dict]:
    with server.client() as client:
        response = client.post(f"/v2/models/boxes/predict{query}", **request)
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_boxes_are_in_pixels_of_each_image(server):
    files = [("image", ("a.png", picture(64, 64, 255))), ("image", ("b.png", picture(640, 640, 204)))]
    first, second = detect(server, files=files)
    (found,) = first["detections"]
    assert (found["label"], found["index"]) == ("dog", 1)
    assert found["score"] == pytest.approx(1, abs=1e-3)
    assert found["box"] == pytest.approx([22, 27, 42, 37])
    (found,) = second["detections"]
    assert found["score"] == pytest.approx(0.8, abs=1e-3)
    assert found["box"] == pytest.approx([220, 270, 420, 370])


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", 1),
        ("?iou_threshold=1", 2),
        ("?score_threshold=0.95&iou_threshold=1", 1),
        ("?iou_threshold=1&max_detections=1", 1),
    ],
)
def test_the_query_says_which_boxes_are_answered(server, query, count):
    content = picture(64, 64, 255)
    (result,) = detect(server, query, content=content, headers={"Content-Type": "image/png"})
    assert len(result["detections"]) == count


def test_a_dark_image_shows_nothing(server):
    assert detect(server, content=picture(64, 64, 0)) == [{"height": 64, "width": 64, "detections": []}]


@pytest.mark.parametrize(("height", "width"), [(5, 3000), (3000, 5), (1, 1)])
def test_boxes_stay_on_images_far_from_the_models_shape(server, height, width):
    (result,) = detect(server, "?score_threshold=0.1", content=picture(height, width, 255))
    (found,) = result["detections"]
    left, top, right, bottom = found["box"]
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory, start_server: StartServer) -> RunningServer:
    if not (MINILM / "model.onnx").is_file():
        pytest.skip("needs MiniLM as model.onnx and tokenizer.json in ../shared/models/minilm")
    repository = tmp_path_factory.mktemp("minilm")
    lay_out_embedder(MINILM, repository)
    yield start_server(repository)
    shutil.rmtree(repository)


SENTENCES = [
    "A man is playing a guitar.",
    "Someone plays the guitar.",
    "The central bank raised interest rates today.",
]


def test_paraphrases_are_near_and_other_sentences_far(minilm):
    first, paraphrase, other = vectors(minilm, "minilm", SENTENCES)
    assert first @ paraphrase > 0.7
    assert first @ other < 0.3
    assert paraphrase @ other < 0.3


def test_minilm_gives_a_text_one_vector_whatever_comes_with_it(minilm):
    longer = [*SENTENCES, " ".join(SENTENCES * 4), "Yes."]
    together = vectors(minilm, "minilm", longer)
    alone = np.concatenate([vectors(minilm, "minilm", [text]) for text in longer])
    np.testing.assert_allclose(together, alone, atol=2e-6)
