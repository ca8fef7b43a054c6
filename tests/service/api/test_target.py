from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.target import Target, parse_stream_target, parse_target

NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=("Cs",)), min_size=1, max_size=20)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v2/models/m/infer", Target("m", None, "infer")),
        ("/v2/models/m/predict", Target("m", None, "predict")),
        ("/v2/models/m/versions/12/infer", Target("m", "12", "infer")),
        ("/v2/models/m/versions/1/predict", Target("m", "1", "predict")),
        ("/v2/models/infer/infer", Target("infer", None, "infer")),
        ("/v2/models/versions/versions/1/infer", Target("versions", "1", "infer")),
        ("/v2/models/caf\u00e9 au lait/infer", Target("caf\u00e9 au lait", None, "infer")),
        ("/v2/models/../infer", Target("..", None, "infer")),
        ("/v2/models//infer", None),
        ("/v2/models/infer", None),
        ("/v2/models//versions/1/infer", None),
        ("/v2/models/m/versions/1/2/infer", None),
        ("/v2/models/m/version/1/infer", None),
        ("/v2/models/m/versions//infer", None),
        ("/v2/models/m/versions/x/infer", None),
        ("/v2/models/m/versions/-1/infer", None),
        ("/v2/models/m/versions/\u0661/infer", None),
        ("/v2/models/m/versions/infer", None),
        ("/v2/models/m/n/infer", None),
        ("/v2/models/m/infer/", None),
        ("/v2/models/m/infers", None),
        ("/v2/models/m", None),
        ("/v1/models/m/infer", None),
        ("v2/models/m/infer", None),
        ("", None),
    ],
)
def test_parse_target(path: str, target: Target | None) -> None:
    assert parse_target(path) == target


@given(name=NAMES, version=st.none() | st.integers(0, 10**20).map(str), verb=st.sampled_from(["infer", "predict"]))
def test_every_name_and_version_comes_back(name: str, version: str | None, verb: str) -> None:
    middle = "" if version is None else f"/versions/{version}"
    assert parse_target(f"/v2/models/{name}{middle}/{verb}") == Target(name, version, verb)


@given(st.text(max_size=60))
def test_no_path_is_an_error(rest: str) -> None:
    for path in (rest, f"/v2/models/{rest}", f"/v2/models/{rest}/infer"):
        target = parse_target(path)
        assert target is None or (target.model and "/" not in target.model)


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/v2/models/m/stream", Target("m", None, "stream")),
        ("/v2/models/m/versions/12/stream", Target("m", "12", "stream")),
        ("/v2/models//stream", None),
        ("/v2/models/stream", None),
        ("/v2/models/m/versions/x/stream", None),
        ("/v2/models/m/streams", None),
        ("/v2/models/m/infer", None),
        ("/stream", None),
    ],
)
def test_streams_are_told_apart(path: str, target: Target | None) -> None:
    assert parse_stream_target(path) == target
    assert parse_target(path) is None or path.endswith("/infer")
