from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.request import HARDWARE_COMPATIBILITIES, BuildOptions, BuildRequest

OPTIONS = st.builds(
    BuildOptions,
    optimization_level=st.none() | st.integers(0, 5),
    workspace_bytes=st.none() | st.integers(1, 1 << 40),
    timing_cache=st.none() | st.just(Path("/somewhere/cache")),
    hardware_compatibility=st.none() | st.sampled_from(HARDWARE_COMPATIBILITIES),
    is_version_compatible=st.none() | st.booleans(),
    device=st.none() | st.integers(0, 8),
    is_weak_typing_allowed=st.none() | st.booleans(),
)


@given(OPTIONS, st.sampled_from(["", "1", "12"]))
def test_a_request_comes_through_json_as_it_was(options: BuildOptions, version: str) -> None:
    request = BuildRequest(
        model_folder=Path("/models/resnet50"),
        version=version,
        plan_path=Path("/models/resnet50/model.plan"),
        options=options,
    )
    text = request.to_json()
    assert "\n" not in text
    assert BuildRequest.from_json(text) == request


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "this is no build request"),
        ("[]", "this is no build request"),
        ('{"version": "1"}', "model_folder"),
        ('{"model_folder": "a", "version": "1", "plan_path": "b", "options": {"fast": 1}}', "unknown options"),
    ],
)
def test_what_is_no_request_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match="this is no build request") as caught:
        BuildRequest.from_json(text)
    assert words in str(caught.value)
