"""Channels over a real socket pair: what leaves together, what arrives, what ends."""

import asyncio
import socket

import pytest

from service.transport.channel import Channel
from service.transport.wire import Kind, Malformed, pack_frame
from tests.doubles.held_repository import until


class Ear:
    """Keeps what it hears; `bad` is what it cannot stand."""

    def __init__(self, bad=None):
        self.bad = bad
        self.turns = []
        self.errors = []
        self.channel = None

    def opened(self, channel):
        self.channel = channel

    def received(self, frames):
        self.turns.append([(kind, bytes(payload)) for kind, payload in frames])
        if self.bad in [kind for kind, _ in frames]:
            raise Malformed("not that")

    def lost(self, error):
        self.errors.append(error)

    @property
    def heard(self):
        return [frame for turn in self.turns for frame in turn]


@pytest.fixture
async def pair():
    loop = asyncio.get_running_loop()
    here, there = Ear(), Ear(bad=Kind.HELLO)
    for ear, end in zip((here, there), socket.socketpair(), strict=True):
        await loop.create_connection(lambda ear=ear: Channel(ear), sock=end)
    yield here, there
    for ear in (here, there):
        ear.channel.close()
    await until(lambda: here.errors and there.errors)


async def test_what_is_sent_in_one_turn_arrives_in_one(pair):
    here, there = pair
    for number in range(5):
        here.channel.send(pack_frame(Kind.CANCEL, bytes([number])))
    await until(lambda: there.turns)
    assert there.turns == [[(Kind.CANCEL, bytes([number])) for number in range(5)]]


async def test_what_was_sent_before_the_end_arrives(pair):
    here, there = pair
    here.channel.send(pack_frame(Kind.FORWARD, bytes(1 << 20)))
    here.channel.close()
    here.channel.close()
    assert not here.channel.is_open
    here.channel.send(pack_frame(Kind.FORWARD, b"too late"))
    await until(lambda: there.errors)
    assert [len(payload) for _, payload in there.heard] == [1 << 20]
    assert here.errors == there.errors == [None]


async def test_whoever_sends_much_waits_for_who_reads(pair):
    here, there = pair
    there.channel._transport.pause_reading()
    sent = 0

    async def send_all():
        nonlocal sent
        for _ in range(64):
            here.channel.send(pack_frame(Kind.FORWARD, bytes(1 << 16)))
            await here.channel.drain()
            sent += 1

    sending = asyncio.create_task(send_all())
    await until(lambda: not here.channel._can_write.is_set())
    assert sent < 64
    there.channel._transport.resume_reading()
    await asyncio.wait_for(sending, 10)
    await until(lambda: len(there.heard) == 64)


async def test_whoever_waits_to_send_is_released_by_the_end(pair):
    here, there = pair
    there.channel._transport.pause_reading()
    while here.channel._can_write.is_set():
        here.channel.send(pack_frame(Kind.FORWARD, bytes(1 << 20)))
        here.channel._flush()
    waiting = asyncio.create_task(here.channel.drain())
    there.channel._transport.abort()
    await asyncio.wait_for(waiting, 10)


@pytest.mark.parametrize("sent", [b"\x00\x00\x00\x00\x63", pack_frame(Kind.HELLO, b"")])
async def test_what_makes_no_sense_ends_the_channel_and_says_why(pair, sent):
    here, there = pair
    here.channel.send(sent)
    await until(lambda: here.errors and there.errors)
    assert isinstance(there.errors[0], Malformed)
    assert not there.channel.is_open
