"""Stands in for the service: identity and CNN models of the speed bars, answered with zeros.

`python -m tests.loadtest.stand_in --repository DIR --port N`; front ends are taken note of, no more.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from tests.loadtest.tiny_server import Reply, Request, TinyServer, reply

TENSORS = {
    "identity-small": (("x", "FP32", [-1, 1024]), ("y", "FP32", [-1, 1024]), 4096),
    "identity-large": (("x", "FP32", [-1, 3, 224, 224]), ("y", "FP32", [-1, 3, 224, 224]), 602_112),
    "cnn": (("image", "UINT8", [-1, 3, 64, 64]), ("scores", "FP32", [-1, 1000]), 4000),
}


def described(entry: tuple[str, str, list[int]]) -> dict[str, object]:
    return {"name": entry[0], "datatype": entry[1], "shape": entry[2]}


async def answer(request: Request) -> Reply:
    if request.path.endswith("/health/ready"):
        return reply(200)
    name = request.path.split("/")[3]
    source, result, row_bytes = TENSORS[name]
    if request.method == "GET":
        return reply(
            200, json.dumps({"name": name, "inputs": [described(source)], "outputs": [described(result)]}).encode()
        )
    output = {**described(result), "shape": [1, *result[2][1:]], "parameters": {"binary_data_size": row_bytes}}
    header = json.dumps({"outputs": [output]}).encode()
    return reply(200, header + bytes(row_bytes), f"Inference-Header-Content-Length: {len(header)}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repository", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--frontends", type=int, default=0)
    options = parser.parse_args()
    async with TinyServer(answer, options.port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
