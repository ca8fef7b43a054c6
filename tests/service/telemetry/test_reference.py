from pathlib import Path

from service.repository.start_up import Phase
from service.telemetry.metrics import OWN, TRITON
from service.telemetry.reference import metrics_reference

DOCUMENT = Path(__file__).parents[3] / "docs/metrics.md"


def test_the_document_is_up_to_date():
    assert DOCUMENT.read_text() == metrics_reference(), "run: python -m service.telemetry.reference > docs/metrics.md"


def test_every_metric_has_a_row():
    rows = [line.split("`")[1] for line in metrics_reference().splitlines() if line.startswith(("| `inferl", "| `nv_"))]
    assert rows == [spec.name for spec in (*OWN, *TRITON)]


def test_the_phases_are_those_of_start_up():
    told = f"start-up: {', '.join(f'`{phase.value}`' for phase in Phase)}.\n"
    assert told in metrics_reference()
