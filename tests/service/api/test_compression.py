import contextlib
import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.api.compression import decode_body, encode_body, response_encoding
from service.errors import InvalidInput, PayloadTooLarge, Unsupported

PLAIN = b"tensor " * 100
GZIP = gzip.compress(PLAIN)
ZLIB = zlib.compress(PLAIN)
RAW_DEFLATE = ZLIB[2:-4]  # without the header and checksum of zlib's wrapper
LIMIT = len(PLAIN)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        (None, PLAIN),
        (b"", PLAIN),
        (b"identity", PLAIN),
        (b"gzip", GZIP),
        (b" GZip ", GZIP),
        (b"deflate", ZLIB),
        (b"gzip", bytearray(GZIP)),
    ],
)
def test_bodies_are_decoded_up_to_the_limit_inclusive(encoding: bytes | None, body: bytes) -> None:
    assert decode_body(encoding, body, LIMIT) == PLAIN


@pytest.mark.parametrize("encoding", [b"br", b"zstd", b"gzip, gzip", b"*", b"\xff"])
def test_other_encodings_are_named_with_the_supported_ones(encoding: bytes) -> None:
    with pytest.raises(Unsupported, match="send gzip, deflate or no compression"):
        decode_body(encoding, GZIP, LIMIT)


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        (b"gzip", b"", "cut short"),
        (b"gzip", GZIP[:-1], "cut short"),
        (b"gzip", GZIP[: len(GZIP) // 2], "cut short"),
        (b"deflate", ZLIB[:-1], "cut short"),
        (b"gzip", b"not compressed", "no valid gzip data"),
        (b"gzip", ZLIB, "no valid gzip data"),
        (b"deflate", GZIP, "no valid deflate data"),
        (b"deflate", RAW_DEFLATE, "no valid deflate data"),
        (b"gzip", GZIP[:-8] + bytes(8), "no valid gzip data"),
        (b"gzip", GZIP + b"x", "1 bytes follow the gzip data"),
        (b"gzip", GZIP + GZIP, f"{len(GZIP)} bytes follow the gzip data"),
    ],
)
def test_corrupt_data_is_refused(encoding: bytes, body: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        decode_body(encoding, body, LIMIT)


@pytest.mark.parametrize(("encoding", "body"), [(None, PLAIN), (b"gzip", GZIP), (b"deflate", ZLIB)])
def test_one_byte_over_the_limit_is_too_large(encoding: bytes | None, body: bytes) -> None:
    with pytest.raises(PayloadTooLarge, match=f"exceeds {LIMIT - 1} bytes"):
        decode_body(encoding, body, LIMIT - 1)


def test_a_bomb_costs_no_more_memory_than_the_limit() -> None:
    bomb = gzip.compress(bytes(64 << 20), 9)
    tracemalloc.start()
    with pytest.raises(PayloadTooLarge):
        decode_body(b"gzip", bomb, 1 << 20)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        (None, None),
        (b"", None),
        (b"identity", None),
        (b"*", None),
        (b"gzip", b"gzip"),
        (b"GZIP", b"gzip"),
        (b"deflate", b"deflate"),
        (b"gzip;q=0.5", b"gzip"),
        (b"gzip; q=0", None),
        (b"gzip;q=0.000", None),
        (b"gzip;q=nonsense", None),
        (b"gzip;q=0, deflate", b"deflate"),
        (b"gzip, deflate;q=0, *;q=0", b"gzip"),
        (b"gzip, identity", b"gzip"),
        (b"gzip;q=0.5, identity;q=1", None),
        (b"gzip, deflate", None),
        (b"gzip, deflate, br", None),
        (b"gzip, br", None),
        (b"gzip, br;q=0", b"gzip"),
        (b"br", None),
    ],
)
def test_compresses_only_what_the_client_means(accepted: bytes | None, encoding: bytes | None) -> None:
    assert response_encoding(accepted) == encoding


@given(st.binary(max_size=200))
def test_any_accept_encoding_gives_a_coding_we_have(accepted: bytes) -> None:
    assert response_encoding(accepted) in (None, b"gzip", b"deflate")


@pytest.mark.parametrize("encoding", [b"gzip", b"deflate"])
def test_chunks_are_one_stream(encoding: bytes) -> None:
    packed = encode_body(encoding, [b"head", memoryview(PLAIN), b""])
    inflate = gzip.decompress if encoding == b"gzip" else zlib.decompress
    assert inflate(packed) == b"head" + PLAIN


@given(st.binary(max_size=300), st.sampled_from([b"gzip", b"deflate"]))
def test_arbitrary_bytes_are_refused_or_decoded(body: bytes, encoding: bytes) -> None:
    assert decode_body(encoding, encode_body(encoding, [body]), 300) == body
    with contextlib.suppress(InvalidInput, PayloadTooLarge):
        decode_body(encoding, body, 300)
