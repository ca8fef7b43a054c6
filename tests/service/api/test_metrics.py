from __future__ import annotations

import pytest

from tests.doubles.control_plane import ControlPlane


@pytest.mark.parametrize(
    ("accept", "content_type", "last_line"),
    [
        ("*/*", "text/plain", None),
        ("application/openmetrics-text;version=1.0.0", "application/openmetrics-text", "# EOF"),
    ],
)
async def test_metrics_in_the_format_asked_for(accept: str, content_type: str, last_line: str | None) -> None:
    plane = ControlPlane()
    plane.recorder.record_unattributed("unauthorized")
    response = await plane.request("GET", "/metrics", headers={"Accept": accept})
    assert response.status_code == 200
    assert response.headers["content-type"].startswith(content_type)
    assert 'inferlane_unattributed_failures_total{reason="unauthorized"} 1.0' in response.text
    assert (response.text.splitlines()[-1] == "# EOF") is (last_line is not None)
