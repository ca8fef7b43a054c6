"""A task whose media are lines of text: the answer is the sum of each line's bytes, whichever way it went."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from service.buckets import Form
from service.errors import InvalidInput
from service.models import ModelSpec
from service.pipeline.steps import Call, Step, Steps
from tests.doubles.requests import MAX_TEXT_BYTES, text_inputs


@dataclass(frozen=True, slots=True, eq=False)
class TextTask:
    """For `make_media_spec` on a `HeldBackend`. Lines that media take go as they are; the host adds up the others."""

    spec: ModelSpec

    def check_options(self, options: Mapping[str, str]) -> None:
        if options:
            raise InvalidInput("there is no option")

    def steps(self, body: bytes, content_type: str, options: Mapping[str, str]) -> Steps:
        calls = tuple(map(self._call, body.splitlines()))
        outputs = yield Step(calls, is_rest_quick=True)
        return {
            "sums": [int(host_answers[0][0, 0]) for host_answers in outputs],
            "forms": [call.form.name for call in calls],
        }

    def _call(self, line: bytes) -> Call:
        if len(line) <= MAX_TEXT_BYTES and self.spec.serves_media(1, ()):
            return Call(text_inputs(line), 1, form=Form.MEDIA)
        return Call((np.full((1, 4), sum(line) / 2, np.float32),), 1)
