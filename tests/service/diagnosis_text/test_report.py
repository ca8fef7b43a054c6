"""What a terminal shows of a document, for every fault that the snapshots by hand know."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from service.diagnosis.document import to_json
from service.diagnosis.report import diagnose
from service.diagnosis.review import baseline_of, review, review_to_json
from service.diagnosis_text.report import is_clear, render, to_text
from tests.doubles import faults
from tests.doubles.snapshots import bare, healthy


def document(snapshot):
    return to_json(diagnose(snapshot, report_id="r1"))


@pytest.mark.parametrize("make", [faults.overload, faults.padding_waste, faults.launch_bound, faults.graph_miss])
def test_a_fault_is_shown_with_its_evidence_and_its_fix(make):
    shown = document(make())
    text = to_text(shown)
    finding = shown["findings"][0]
    assert finding["verdict"] == "confirmed"
    assert shown["window"]["headline"].split(":")[0] in text
    for part in (finding["evidence"][0]["name"], "fix: ", "verify: ", "report r1"):
        assert part in text
    assert not is_clear(shown)


def test_a_healthy_server_says_so():
    shown = document(healthy())
    text = to_text(shown)
    assert "no bottleneck above 3 %" in text
    assert "fix:" not in text
    assert is_clear(shown)


def test_stations_buckets_stages_and_layers_are_there():
    shown = document(healthy())
    text = to_text(shown)
    for name in (*shown["stations"], *shown["window"]["stages_s"], "layers of bucket 8"):
        assert name in text
    assert "limits first" in text


def test_what_was_not_recorded_is_a_dash():
    text = to_text(document(bare()))
    assert "latency mean 1.5 ms, p50 -" in text


def test_a_window_that_cannot_be_judged_tells_the_checks_that_failed():
    text = to_text(document(faults.invalid_measurement()))
    assert "check " in text


def test_refuted_findings_show_their_evidence_only_where_asked_for():
    shown = document(healthy())
    texts = []
    for shows_all in (False, True):
        console = Console(width=120, record=True, file=StringIO())
        console.print(render(shown, shows_all=shows_all))
        texts.append(console.export_text())
    short, long = texts
    assert "held against" not in short
    assert "held against" in long


def test_a_plain_text_has_no_control_characters_and_no_trailing_blanks():
    text = to_text(document(faults.overload()))
    assert all(char.isprintable() or char == "\n" for char in text)
    assert not any(line != line.rstrip() for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 120


def test_a_review_tells_what_became_of_each_prediction():
    before = diagnose(faults.batch_formation_delay(), report_id="r1")
    after = diagnose(healthy(), report_id="r2")
    shown = review_to_json(review(baseline_of(before), after))
    text = to_text(shown)
    assert "since report r1" in text
    assert "batch-formation-delay" in text
    assert is_clear(shown)
    same = review_to_json(review(baseline_of(before), before))
    assert not is_clear(same)


def test_a_review_of_a_report_that_predicted_nothing():
    report = diagnose(healthy(), report_id="r1")
    assert "predicted nothing" in to_text(review_to_json(review(baseline_of(report), report)))
