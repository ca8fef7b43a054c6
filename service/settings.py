"""The server's settings: the only reader of the environment.

Every field is an environment variable `INFERLANE_<NAME>`; the command line's options override it. A variable of that
form that is no setting is refused: misspelt, a limit or a key would be missing and nobody told.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.errors import SettingsInvalid
from service.machine import default_threads

PREFIX = "INFERLANE_"

MAX_DURATION_S = 86_400.0
MAX_CPU_THREADS = 1024

KERNEL_CACHE = Path("~/.cache/inferlane/kernels")
"""Where compiled kernels are kept unless somebody says otherwise."""

_SERVICE_DISCOVERY = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


class Settings(BaseSettings):
    """Frozen settings of one server process. The README's table is generated from the descriptions here."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, extra="forbid")

    repository: Path = Field(Path("models"), description="Folder of the model repository.")
    host: str = Field("127.0.0.1", description="Address to listen on; `0.0.0.0` for every interface.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    frontends: int = Field(
        0,
        ge=0,
        le=64,
        description="Processes that read and answer HTTP, apart from the one that runs the models; 0 does both in one.",
    )
    arena_bytes: int = Field(
        1 << 30,
        ge=1 << 20,
        description="Memory that front ends share with the engine, all together: bodies, tensors and results of their "
        "requests lie there.",
    )
    models: tuple[str, ...] | None = Field(
        None, description="Models to load at start-up, as a JSON list; all of the repository's by default."
    )
    cpu_threads: int | None = Field(
        None,
        ge=1,
        le=MAX_CPU_THREADS,
        description="Threads of each model, divided among its lanes, and of the decoding of images; "
        "by default the whole cores that affinity and the container's quota leave to this process.",
    )
    max_body_bytes: int = Field(
        64 << 20, ge=1024, description="Largest request body, compressed or not; larger ones get 413."
    )
    max_in_flight_bytes: int = Field(
        1 << 30, ge=1 << 20, description="Request bytes held at once by all requests together; above it, 503."
    )
    max_image_pixels: int = Field(
        50_000_000,
        ge=1,
        description="Largest image, width times height, read from its header before decoding.",
    )
    max_stream_in_flight: int = Field(
        32, ge=1, le=1024, description="Most frames of one stream that are worked on at once, whatever it asks for."
    )
    body_timeout_s: float = Field(
        30.0,
        gt=0,
        le=MAX_DURATION_S,
        allow_inf_nan=False,
        description="Seconds within which a request's head, and then its whole body, must arrive; slower ones get 408.",
    )
    send_timeout_s: float = Field(
        30.0,
        gt=0,
        le=MAX_DURATION_S,
        allow_inf_nan=False,
        description="Seconds within which a client must take its answer; slower ones lose their connection.",
    )
    max_connections: int = Field(
        4096,
        ge=1,
        description="Connections open at once, at most what the process's limit of open files leaves room for; one "
        "beyond them gets 503 and is closed.",
    )
    overload_status: Literal[503, 429] = Field(
        503, description="Status of requests and connections refused for overload: 503 as Triton, or 429."
    )
    drain_timeout_s: float = Field(
        30.0,
        ge=0,
        le=MAX_DURATION_S,
        allow_inf_nan=False,
        description="Seconds that running requests get to finish at shut-down or reload.",
    )
    build_plans_enabled: bool = Field(
        True,
        description="Whether a model whose card allows TensorRT, and which has an ONNX file and no plan, gets its plan "
        "built before it serves, where a GPU and TensorRT's builder are there; that takes minutes.",
    )
    kernel_cache: Path = Field(
        KERNEL_CACHE,
        description="Folder that keeps the compiled CUDA kernels of tasks between starts; whoever can write it can run "
        "code on the GPU. `python -m kernels.compile` fills one ahead.",
    )
    exit_on_error: bool = Field(
        True, description="Whether a model that cannot be loaded at start-up ends the server, as in Triton."
    )
    repository_control_enabled: bool = Field(True, description="Whether the repository API may load and unload models.")
    api_key: SecretStr | None = Field(None, description="Bearer key that inference requires; none by default.")
    admin_api_key: SecretStr | None = Field(
        None, description="Bearer key that the repository, trace and logging API require; none by default."
    )
    system_shared_memory_enabled: bool = Field(
        False,
        description="Whether clients may register POSIX shared memory of this machine, through which tensors then "
        "travel; whoever may register can make the server read and write any object in `/dev/shm` that its user can.",
    )
    max_shared_regions: int = Field(
        256, ge=1, le=4096, description="Most regions of shared memory that are registered at once."
    )
    max_shared_region_bytes: int = Field(
        4 << 30,
        ge=1,
        description="Most bytes of the shared memory objects that are registered at once, whole objects counted.",
    )
    metrics_enabled: bool = Field(True, description="Whether requests are recorded and `/metrics` is served.")
    triton_metrics_enabled: bool = Field(
        True, description="Whether `/metrics` repeats the figures under Triton's `nv_*` names."
    )
    gpu_metrics_enabled: bool = Field(
        True,
        description="Whether the GPUs that models use are asked, once a second, for utilization, memory, power, clocks "
        "and activity.",
    )
    diagnosis_enabled: bool = Field(
        True, description="Whether `/diagnose` is served; it needs `INFERLANE_METRICS_ENABLED`."
    )
    diagnosis_history_s: int = Field(
        600,
        ge=10,
        le=3600,
        description="Seconds that `/diagnose` can look back; each keeps some kilobytes per model that is busy.",
    )
    probes_enabled: bool = Field(
        True,
        description="Whether `/diagnose/probes` may run experiments, which take a small share of the lanes' time, or "
        "pause a model for seconds; only whoever has the admin key, where there is one, can begin them.",
    )
    server_timing_enabled: bool = Field(
        True, description="Whether responses carry a `Server-Timing` header with their stages."
    )
    nvtx_enabled: bool = Field(
        False,
        description="Whether lanes mark what they do on the timeline of Nsight Systems; needs the package `nvtx`.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")

    @property
    def resolved_cpu_threads(self) -> int:
        """`cpu_threads`, where it is left out what the machine leaves to this process."""
        return self.cpu_threads or default_threads()

    @field_validator("host")
    @classmethod
    def _host(cls, host: str) -> str:
        """An empty host would be every interface."""
        if not host.strip():
            raise ValueError("an address is needed, such as 127.0.0.1, or 0.0.0.0 for every interface")
        return host

    @field_validator("overload_status", mode="before")
    @classmethod
    def _number(cls, value: object) -> object:
        """The environment holds text, which is never equal to a literal number."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value


def load_settings(**options: object) -> Settings:
    """The settings of this process: `options` first, then the environment, then the defaults.

    An orchestrator tells its containers of a service by the name "inferlane", or of one that begins with it, in
    variables of our form. Those are passed over: INFERLANE_PORT=tcp://10.0.0.1:8000 leaves the default port.

    Raises:
        SettingsInvalid: a value is not allowed, or a variable is no setting; the message names the variable, the value
            and what is allowed.
    """
    _refuse_unknown(os.environ)
    if _is_service_address(os.environ.get(f"{PREFIX}PORT", "")):
        options = {"port": Settings.model_fields["port"].default, **options}
    try:
        return Settings(**options)  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsInvalid("; ".join(map(_problem_text, error.errors()))) from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    unknown = [
        name
        for name, text in environment.items()
        if name.upper().startswith(PREFIX) and not _is_known(name.upper().removeprefix(PREFIX), text)
    ]
    if unknown:
        raise SettingsInvalid("; ".join(map(_unknown_text, sorted(unknown))))


def _is_known(name: str, text: str) -> bool:
    """Whether `name`, without its prefix, is a setting or speaks of a service."""
    if name.lower() in Settings.model_fields or _SERVICE_DISCOVERY.fullmatch(name):
        return True
    return name.endswith("_PORT") and _is_service_address(text)


def _is_service_address(text: str) -> bool:
    return _SERVICE_ADDRESS.match(text) is not None


def _unknown_text(variable: str) -> str:
    names = list(Settings.model_fields)
    nearest = difflib.get_close_matches(variable.upper().removeprefix(PREFIX).lower(), names, n=1)
    allowed = ", ".join(f"{PREFIX}{name.upper()}" for name in nearest or names)
    mend = f"did you mean {allowed}?" if nearest else f"there are {allowed}"
    return f"{variable} is no setting; {mend}"


def _problem_text(problem: ErrorDetails) -> str:
    message = problem["msg"].removeprefix("Value error, ")
    allowed = message[:1].lower() + message[1:]
    if problem["type"] == "tuple_type":
        allowed = 'a list is written as JSON, such as ["resnet50"]'
    return f"{PREFIX}{str(problem['loc'][0]).upper()}: got {problem['input']!r}, {allowed}"
