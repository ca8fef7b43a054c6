"""Cards: what they become, and what is said about the malformed ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.cards import BuildCard, Interpolation, ModelCard, Resize, ShapeRange
from service.errors import CardError
from service.repository.card import MAX_CARD_BYTES, load_card
from service.repository.card_reference import card_reference
from service.repository.labels import MAX_LABELS_BYTES

FULL_CARD = """
name = "resnet50"
task = "classify"
backend = "onnxruntime"
labels = "labels.txt"

[dims]
images = ["batch", 3, "height", "width"]

[buckets]
batch = [1, 2, 4]
height = [224]

[padding]
images = 1

[batching]
max_batch_size = 4
max_queue_delay_ms = 0.25
max_queued_requests = 7
max_queued_bytes = 4096
default_timeout_ms = 1500
priority_levels = 3

[[profile]]
images = { min = [1, 3, 224, 224], opt = [2, 3, 224, 224], max = [4, 3, 224, 224] }

[lanes]
count = 2
threads_per_lane = 3
device = 1

[precision]
mode = "fp16"
min_cosine = 0.99

[build]
optimization_level = 0
workspace_bytes = 4096
hardware_compatibility = "ampere+"
version_compatible = true
weak_typing = false

[preprocess]
resize = "shortest-side+crop"
shortest_side = 256
interpolation = "lanczos"
color = "bgr"
scale = 1
mean = [1, 2.5, 3]
std = [4.0, 5.0, 6.0]
pad_value = 0
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "resnet50"
    folder.mkdir()
    (folder / "labels.txt").write_text("cat\ndog\n", encoding="utf-8")
    return folder


def load(folder: Path, text: str) -> ModelCard:
    (folder / "model.toml").write_text(text, encoding="utf-8")
    return load_card(folder)


def message(folder: Path, text: str) -> str:
    with pytest.raises(CardError) as caught:
        load(folder, text)
    return str(caught.value)


def outcome(folder: Path) -> str | None:
    """What is said about the card in `folder`; None if it loads."""
    try:
        load_card(folder)
    except CardError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", [None, "", "# only a comment\n"])
def test_a_card_that_says_nothing_has_the_defaults(folder: Path, text: str | None) -> None:
    assert (load_card(folder) if text is None else load(folder, text)) == ModelCard(name="resnet50")


def test_every_key_arrives(folder: Path) -> None:
    card = load(folder, FULL_CARD)

    assert (card.name, card.task, card.backend) == ("resnet50", "classify", "onnxruntime")
    assert card.labels == ("cat", "dog")
    assert card.dims == {"images": ("batch", 3, "height", "width")}
    assert card.bucket_sizes == {"batch": (1, 2, 4), "height": (224,)}
    assert card.pad_values == {"images": 1.0}
    assert card.profiles == ({"images": ShapeRange(min=(1, 3, 224, 224), opt=(2, 3, 224, 224), max=(4, 3, 224, 224))},)
    assert card.batching.max_batch_size == 4
    assert card.batching.max_queue_delay_ns == 250_000
    assert card.batching.max_queued_requests == 7
    assert card.batching.max_queued_bytes == 4096
    assert card.batching.default_timeout_ns == 1_500_000_000
    assert card.batching.priority_levels == 3
    assert (card.lanes.count, card.lanes.threads_per_lane, card.lanes.device) == (2, 3, 1)
    assert (card.precision.mode, card.precision.min_cosine) == ("fp16", 0.99)
    assert card.build == BuildCard(
        optimization_level=0,
        workspace_bytes=4096,
        hardware_compatibility="ampere+",
        is_version_compatible=True,
        is_weak_typing_allowed=False,
    )
    preprocess = card.preprocess
    assert (preprocess.resize, preprocess.shortest_side) == (Resize.SHORTEST_SIDE_CROP, 256)
    assert (preprocess.interpolation, preprocess.color) == (Interpolation.LANCZOS, "bgr")
    assert (preprocess.scale, preprocess.mean, preprocess.std) == (1.0, (1.0, 2.5, 3.0), (4.0, 5.0, 6.0))
    assert preprocess.pad_value == 0


def test_a_card_cannot_be_changed(folder: Path) -> None:
    card = load(folder, FULL_CARD)
    with pytest.raises(TypeError):
        card.bucket_sizes["batch"] = (1,)  # type: ignore[index]


def test_a_byte_order_mark_is_no_syntax_error(folder: Path) -> None:
    (folder / "model.toml").write_bytes(b"\xef\xbb\xbftask = 'classify'\n")
    assert load_card(folder).task == "classify"


def test_lanes_auto_is_the_backends_choice(folder: Path) -> None:
    assert load(folder, '[lanes]\ncount = "auto"').lanes.count is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[batching]\nmax_batchsize = 4", "batching.max_batchsize: got 4, unknown key; did you mean 'max_batch_size'?"),
        ("max_batch_size = 4", "max_batch_size: got 4, unknown key; did you mean 'max_batch_size' in [batching]?"),
        (
            '[lanes]\ntask = "tensor"',
            "lanes.task: got \"tensor\", unknown key; did you mean 'task' at the top of the card",
        ),
        ("[bucket]\nbatch = [1]", "bucket: unknown key; did you mean 'buckets'?"),
        ("[lanes]\nqqqqq = 1", "lanes.qqqqq: got 1, unknown key; valid here: count, threads_per_lane, device"),
        ('"odd key" = 1', '"odd key": got 1, unknown key; valid here: name, task'),
        (
            "[[profile]]\nx = { mini = [1], opt = [1], max = [1] }",
            "profile[0].x.mini: got [1], unknown key; did you mean 'min'?",
        ),
    ],
)
def test_an_unknown_key_is_told_the_nearest(folder: Path, text: str, words: str) -> None:
    assert words in message(folder, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('task = "clasify"', "task: got \"clasify\", must be one of ['classify', 'detect', 'embed', 'ocr', 'tensor']"),
        ('backend = "onnx"', "backend: got \"onnx\", must be 'auto', 'onnxruntime' or 'tensorrt'"),
        ("backend = true", "backend: got true, must be 'auto'"),
        ("batching = 3", "batching: got 3, must be a table"),
        ("[batching]\nmax_batch_size = -1", "batching.max_batch_size: got -1, must be greater than or equal to 0"),
        ("[batching]\nmax_batch_size = 4.0", "batching.max_batch_size: got 4.0, must be an integer"),
        ("[batching]\nmax_batch_size = true", "batching.max_batch_size: got true, must be an integer"),
        ('[batching]\nmax_batch_size = "4"', 'batching.max_batch_size: got "4", must be an integer'),
        ("[batching]\nmax_queue_delay_ms = nan", "batching.max_queue_delay_ms: got NaN, must be a finite number"),
        ("[batching]\nmax_queue_delay_ms = 1e9", "must be less than or equal to 60000"),
        ("[batching]\ndefault_timeout_ms = 0", "batching.default_timeout_ms: got 0, must be greater than or equal to"),
        ("[batching]\npriority_levels = 0", "batching.priority_levels: got 0"),
        ('[lanes]\ncount = "many"', "lanes.count: got \"many\", must be an integer or 'auto'"),
        ("[lanes]\ncount = 0", "lanes.count: got 0, must be greater than or equal to 1"),
        ("[lanes]\ncount = 65", "lanes.count: got 65, must be less than or equal to 64"),
        ("[lanes]\nthreads_per_lane = 257", "lanes.threads_per_lane: got 257, must be less than or equal to 256"),
        (
            "[lanes]\ncount = 5\nthreads_per_lane = 256",
            "count = 5 lanes with threads_per_lane = 256 are 1280 threads, at most 1024 are allowed; lower either",
        ),
        ("[lanes]\ndevice = -1", "lanes.device: got -1"),
        ("labels = 3", "labels: got 3, must be a string or a list"),
        ('labels = ["a", 3]', "labels[1]: got 3, must be a string"),
        ("[dims]\nx = [1.5]", "dims.x[0]: got 1.5, must be an integer or a string"),
        ('[dims]\nx = [3, "batch"]', "'batch' can only be the first dimension"),
        ('[dims]\nx = [""]', "cannot be empty"),
        ("[dims]\nx = [0]", "dims.x[0]: got 0, must be greater than or equal to 1"),
        ("[buckets]\nbatch = []", "batch: sizes must be given, ascending and without repeats, got []"),
        ("[buckets]\nbatch = [2, 1]", "ascending and without repeats, got [2, 1]"),
        ("[buckets]\nbatch = [1, 1]", "ascending and without repeats, got [1, 1]"),
        ("[buckets]\nbatch = [0, 1]", "buckets.batch[0]: got 0"),
        ("[buckets]\nbatch = 8", "buckets.batch: got 8, must be a list"),
        ("[padding]\nx = inf", "padding.x: got Infinity, must be a finite number"),
        ("[padding]\nx = true", "padding.x: got true, must be a number"),
        (
            "[profile]\nx = { min = [1], opt = [1], max = [1] }",
            "profile: must be an array of tables: write [[profile]]",
        ),
        ("[[profile]]", "profile 0 names no input"),
        ("[[profile]]\nx = { min = [1], opt = [1] }", "profile[0].x.max: is missing"),
        ("[[profile]]\nx = { min = [1], opt = [1, 2], max = [1] }", "must have one rank, got 1, 2 and 1"),
        ("[[profile]]\nx = { min = [2], opt = [1], max = [4] }", "profile[0].x: min <= opt <= max"),
        ("[[profile]]\nx = { min = [1], opt = [5], max = [4] }", "dimension 0 has 1, 5, 4"),
        ('[precision]\nmode = "fp4"', "precision.mode: got \"fp4\", must be 'as-is', 'fp16'"),
        ("[precision]\nmin_cosine = 1.5", "precision.min_cosine: got 1.5"),
        ("[build]\noptimization_level = 6", "build.optimization_level: got 6"),
        ('[build]\nhardware_compatibility = "hopper"', "build.hardware_compatibility: got \"hopper\", must be 'none'"),
        ("[build]\nweak_typing = 1", "build.weak_typing: got 1, must be a valid boolean"),
        ('[preprocess]\nresize = "fit"', "preprocess.resize: got \"fit\", must be 'stretch', 'letterbox' or"),
        ('[preprocess]\ncolor = "gray"', "preprocess.color: got \"gray\", must be 'rgb' or 'bgr'"),
        ("[preprocess]\nmean = [1.0, 2.0]", "preprocess.mean: got [1.0, 2.0], must have at least 3 items"),
        ("[preprocess]\nstd = [1.0, 0.0, 1.0]", "preprocess.std[1]: got 0.0, must be greater than 0"),
        ("[preprocess]\npad_value = 256", "preprocess.pad_value: got 256"),
        ("[preprocess]\nshortest_side = 256", "preprocess: shortest_side means nothing with resize = 'stretch'"),
        (
            '[preprocess]\nresize = "shortest-side+crop"',
            "preprocess: resize = 'shortest-side+crop' needs shortest_side",
        ),
        ("name = 3", "name: got 3, must be a string"),
        ('name = "../resnet50"', 'name: got "../resnet50", must start with a letter or digit'),
        ('name = "other"', "name: got 'other', but the folder is called 'resnet50'"),
        (f'name = "{"n" * 129}"', "has 129 characters, at most 128 are allowed"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(folder: Path, text: str, words: str) -> None:
    said = message(folder, text)
    assert said.startswith(f"{folder / 'model.toml'}: ")
    assert words in said


def test_all_mistakes_are_told_at_once(folder: Path) -> None:
    said = message(folder, "[lanes]\ncount = 0\ndevcie = 1\n[batching]\npriority_levels = 0")
    assert [line.split(":")[0].strip() for line in said.splitlines()[1:]] == [
        "batching.priority_levels",
        "lanes.count",
        "lanes.devcie",
    ]


@pytest.mark.parametrize(
    "text", ['task = "a\n', "x = [1,\n", "a = 1\na = 2\n", f"x = {'[' * 5000}", f"x = {'9' * 5000}"]
)
def test_broken_toml_is_a_card_error(folder: Path, text: str) -> None:
    assert "model.toml: not valid TOML: " in message(folder, text)


def test_a_toml_syntax_error_names_its_line(folder: Path) -> None:
    assert "line 3" in message(folder, "# one\n[lanes]\ncount = = 2\n")


def test_a_card_that_is_no_utf8_names_its_line(folder: Path) -> None:
    (folder / "model.toml").write_bytes(b"# one\ntask = '\xff'\n")
    with pytest.raises(CardError, match=r"model\.toml: line 2: byte 14 is no UTF-8"):
        load_card(folder)


def test_a_card_that_is_a_folder_or_too_large_is_refused(folder: Path) -> None:
    (folder / "model.toml").mkdir()
    with pytest.raises(CardError, match="cannot be read: Is a directory"):
        load_card(folder)
    (folder / "model.toml").rmdir()
    assert "at most" in message(folder, "#" * (MAX_CARD_BYTES + 1))


@pytest.mark.parametrize("name", ["has space", "_underscore", "-dash", "ünïcode", "n" * 129])
def test_a_folder_that_cannot_be_a_models_name_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(CardError, match="rename the folder"):
        load_card(tmp_path / name)


def test_inline_labels_are_taken_as_they_are(folder: Path) -> None:
    assert load(folder, 'labels = ["0", " ", "ü"]').labels == ("0", " ", "ü")


@pytest.mark.parametrize(
    ("content", "labels"),
    [
        ("cat\ndog", ("cat", "dog")),
        ("cat\r\ndog\r\n", ("cat", "dog")),
        ("\ufeffcat\n", ("cat",)),
        ("<blank>\n\u3000\n\u2028\n#\n \n", ("<blank>", "\u3000", "\u2028", "#", " ")),
    ],
)
def test_a_line_of_the_labels_file_is_a_class(folder: Path, content: str, labels: tuple[str, ...]) -> None:
    (folder / "labels.txt").write_bytes(content.encode())
    assert load(folder, 'labels = "labels.txt"').labels == labels


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "the labels file is empty"),
        (b"\n", "the labels file is empty"),
        (b"cat\n\ndog\n", "line 2 of the labels file is empty"),
        (b"cat\n\xff\n", "byte 4 of the labels file is no UTF-8"),
        (b"x" * (MAX_LABELS_BYTES + 1), "at most"),
    ],
)
def test_a_malformed_labels_file_is_refused(folder: Path, content: bytes, words: str) -> None:
    (folder / "labels.txt").write_bytes(content)
    assert words in message(folder, 'labels = "labels.txt"')


@pytest.mark.parametrize(
    ("file_name", "words"),
    [
        ("missing.txt", "no such file"),
        ("", "no such file"),
        ("..", "leads out of the model's folder"),
        ("../secret.txt", "leads out of the model's folder"),
        ("sub/../../secret.txt", "leads out of the model's folder"),
        ("/etc/passwd", "leads out of the model's folder"),
        ("link.txt", "leads out of the model's folder"),
        ("linked/secret.txt", "leads out of the model's folder"),
        ("nul\\u0000.txt", "is no file name"),
        ("n" * 5000, "is no file name"),
    ],
)
def test_labels_never_come_from_outside_the_folder(folder: Path, file_name: str, words: str) -> None:
    (folder.parent / "secret.txt").write_text("secret\n", encoding="utf-8")
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    (folder / "linked").symlink_to(folder.parent)
    assert words in message(folder, f'labels = "{file_name}"')


def test_labels_may_be_linked_inside_the_folder(folder: Path) -> None:
    (folder / "current.txt").symlink_to("labels.txt")
    assert load(folder, 'labels = "current.txt"').labels == ("cat", "dog")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_give_a_card_or_a_card_error(folder: Path, content: bytes) -> None:
    (folder / "model.toml").write_bytes(content)
    said = outcome(folder)
    assert said is None or str(folder) in said


TOML_VALUES = st.recursive(
    st.sampled_from(["0", "-1", "1.5", "nan", "true", '"x"', '""', "2020-01-01", "[]", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]")
        | st.tuples(st.sampled_from(["min", "x", "batch"]), inner).map(lambda pair: f"{{ {pair[0]} = {pair[1]} }}")
    ),
    max_leaves=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200, deadline=None)
@given(
    st.sampled_from(
        ["name", "task", "labels", "dims", "buckets", "padding", "profile", "batching", "lanes", "build", "preprocess"]
    ),
    TOML_VALUES,
)
def test_any_value_under_any_key_gives_a_card_or_names_the_key(folder: Path, key: str, value: str) -> None:
    (folder / "model.toml").write_text(f"{key} = {value}", encoding="utf-8")
    said = outcome(folder)
    assert said is None or key in said


def test_the_reference_is_up_to_date() -> None:
    reference = Path(__file__).parents[3] / "docs" / "model-card.md"
    assert reference.read_text(encoding="utf-8") == card_reference(), (
        "run: python -m service.repository.card_reference > docs/model-card.md"
    )
