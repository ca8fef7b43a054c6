"""What `inferlane inspect` finds out with a GPU; the same on the fake and on a real one."""

from __future__ import annotations

from service.cards import ShapeRange
from service.plan_report.examine import Tools, examine
from service.plan_report.facts import EngineFacts, PlanFacts
from tests.doubles.trt_models import TrtBench


def facts_of(bench: TrtBench, name: str) -> PlanFacts:
    return examine(bench.plan_path(name), Tools(lambda: bench.flavour, lambda: bench.cuda))


def engine_of(bench: TrtBench, name: str) -> EngineFacts:
    engine = facts_of(bench, name).engine
    assert engine is not None
    return engine


class InspectCases:
    """Needs the fixture `bench`."""

    def test_a_plan_of_this_machine_runs_here(self, bench: TrtBench) -> None:
        facts = facts_of(bench, "double")
        assert facts.version.startswith(".".join(bench.flavour.version.split(".")[:2]))
        assert [(check.subject, check.is_passed) for check in facts.checks] == [
            ("manifest", None),
            ("TensorRT", True),
            ("GPU", True),
            ("engine", True),
        ]

    def test_tensors_and_profiles(self, bench: TrtBench) -> None:
        engine = engine_of(bench, "sequence")
        assert [(tensor.name, tensor.wire_shape) for tensor in engine.inputs] == [("x", [-1, -1])]
        assert [tensor.name for tensor in engine.outputs] == ["y"]
        assert engine.profiles == (
            {"x": ShapeRange((1, 1), (4, 4), (4, 8))},
            {"x": ShapeRange((1, 8), (2, 16), (4, 16))},
        )
        assert len(engine.scratch_bytes) == 2

    def test_layers_have_shapes_and_types(self, bench: TrtBench) -> None:
        layers = engine_of(bench, "sequence").layers
        if not bench.flavour.capabilities.inspector:
            assert layers is None
            return
        assert layers is not None
        assert {layer.profile for layer in layers} == {0, 1}
        assert "FP32" in {layer.precision for layer in layers}
        assert not any("-1" in shape for layer in layers for shape in (*layer.inputs, *layer.outputs))
        assert all(layer.kind for layer in layers)
