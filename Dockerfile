# syntax=docker/dockerfile:1
# Two images of one server: `--target cpu` (ONNX Runtime) and `--target gpu` (TensorRT's lean runtime, which runs
# plans built to be version compatible and brings no builder).

ARG PYTHON_IMAGE=python:3.12-slim-bookworm
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-base-ubuntu24.04

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY service service
COPY engines engines
COPY kernels kernels
COPY loadtest loadtest
COPY video video
RUN --mount=type=cache,target=/root/.cache/pip \
    pip wheel --no-deps --wheel-dir /dist .

# An environment is made in the base image that it runs in, so that its interpreter is there afterwards.
FROM ${PYTHON_IMAGE} AS cpu-environment
COPY --from=wheel /dist /dist
RUN --mount=type=cache,target=/root/.cache/pip \
    python -m venv /opt/inferlane \
    && /opt/inferlane/bin/pip install "$(echo /dist/*.whl)[cpu,text,dashboard]"

FROM ${CUDA_IMAGE} AS gpu-environment
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.12-venv \
    && rm -rf /var/lib/apt/lists/*
COPY --from=wheel /dist /dist
RUN --mount=type=cache,target=/root/.cache/pip \
    python3.12 -m venv /opt/inferlane \
    && /opt/inferlane/bin/pip install "$(echo /dist/*.whl)[kernels,text,dashboard,tensorrt-lean-cu13]"

FROM ${CUDA_IMAGE} AS gpu
LABEL org.opencontainers.image.title="inferlane-gpu" \
      org.opencontainers.image.description="Inference server, TensorRT on NVIDIA GPUs" \
      org.opencontainers.image.licenses="Apache-2.0"
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3.12 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 inferlane \
    && useradd --system --uid 10001 --gid inferlane --no-create-home inferlane
COPY --from=gpu-environment /opt/inferlane /opt/inferlane
# The user has no home; a volume in this folder's place keeps the kernels that were compiled for this GPU.
ENV PATH=/opt/inferlane/bin:$PATH \
    INFERLANE_KERNEL_CACHE=/tmp/inferlane/kernels \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('INFERLANE_PORT', '8000')}/v2/health/ready\", timeout=2)"]
ENTRYPOINT ["inferlane"]
CMD ["serve", "--host", "0.0.0.0", "--repository", "/models"]

# The last stage, so that a build without a target makes the image that runs anywhere.
FROM ${PYTHON_IMAGE} AS cpu
LABEL org.opencontainers.image.title="inferlane" \
      org.opencontainers.image.description="Inference server, ONNX Runtime on the CPU" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 inferlane \
    && useradd --system --uid 10001 --gid inferlane --no-create-home inferlane
COPY --from=cpu-environment /opt/inferlane /opt/inferlane
ENV PATH=/opt/inferlane/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('INFERLANE_PORT', '8000')}/v2/health/ready\", timeout=2)"]
ENTRYPOINT ["inferlane"]
CMD ["serve", "--host", "0.0.0.0", "--repository", "/models"]
