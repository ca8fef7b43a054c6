from __future__ import annotations

import io

import pytest

from loadtest.connection import Endpoint
from loadtest.metadata import ModelMetadata
from loadtest.orders import Failed, Order, Ready, packed, read_message
from loadtest.records import Window
from loadtest.scenario import Step
from loadtest.session import Session, Share, StepJob

MESSAGES = [
    Order(
        Session(endpoint=Endpoint("h", 1), model="m"), StepJob(ModelMetadata("m", (), ()), Step(rate=2), 2, Share(1, 3))
    ),
    Ready(),
    Window(1, 2, 3, 4),
    Failed("no server"),
]


def test_messages_come_out_as_they_went_in_and_then_there_are_none() -> None:
    stream = io.BytesIO(b"".join(packed(message) for message in MESSAGES))
    assert [read_message(stream) for _ in range(5)] == [*MESSAGES, None]


@pytest.mark.parametrize("cut", [1, 7])
def test_a_length_that_is_cut_off_is_the_end(cut: int) -> None:
    assert read_message(io.BytesIO(packed(Ready())[:cut])) is None
