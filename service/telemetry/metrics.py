"""Every metric that the server exposes, declared as data: here, and those of the GPUs in `gpu_metrics.py`.

Promises: units are base units and end the name, a counter's name ends in `_total` (Triton's own names apart), and
every label takes values from a bounded set. `docs/metrics.md` is generated from here.
"""

from __future__ import annotations

from service import errors
from service.errors import ServiceError
from service.requests import StageTimings
from service.telemetry.gpu_metrics import GPU_OWN, GPU_TRITON
from service.telemetry.metric_spec import MetricKind, MetricSpec
from service.units import NS_PER_S

LATENCY_BOUNDS_NS = tuple(
    step * decade
    for decade in (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000, 10_000_000_000)
    for step in (1, 2, 5)
    if 50_000 <= step * decade <= 10_000_000_000
)
LATENCY_BOUNDS_S = tuple(bound / NS_PER_S for bound in LATENCY_BOUNDS_NS)
SIZE_BOUNDS = tuple(2.0**exponent for exponent in range(11))
FILL_RATIO_BOUNDS = tuple(eighth / 8 for eighth in range(1, 9))

MAX_BUCKET_LABELS = 128
"""Buckets of one model that get a label of their own; a model served at exact sizes could make any number."""

OTHER_BUCKETS = "other"
"""Label of the buckets beyond `MAX_BUCKET_LABELS`."""

STAGES = StageTimings._fields
LANE_STAGES = ("h2d", "compute", "d2h")
"""Those of `STAGES` that a batch spends on its lane."""

OUTCOME_OK = "ok"
INTERNAL = ServiceError.reason
REASONS = tuple(
    sorted(
        {error.reason for error in vars(errors).values() if isinstance(error, type) and issubclass(error, ServiceError)}
    )
)
"""Every reason of a failure; a reason that is not among them is counted as `INTERNAL`."""

MODEL = ("model", "version")

REQUEST_DURATION = MetricSpec(
    "inferlane_request_duration_seconds",
    MetricKind.HISTOGRAM,
    "Time of answered requests, from their arrival to the response handed to the socket.",
    MODEL,
    LATENCY_BOUNDS_S,
)
REQUEST_STAGE = MetricSpec(
    "inferlane_request_stage_seconds",
    MetricKind.HISTOGRAM,
    "Time that answered requests spent in each stage; the stages of a request sum to its duration.",
    (*MODEL, "stage"),
    LATENCY_BOUNDS_S,
)
REQUESTS = MetricSpec(
    "inferlane_requests_total",
    MetricKind.COUNTER,
    "Requests by outcome: ok, or the reason of the failure (refused ones: overloaded, not_ready, shutting_down).",
    (*MODEL, "outcome"),
)
INFERENCE_ROWS = MetricSpec(
    "inferlane_inference_rows_total", MetricKind.COUNTER, "Rows of answered requests, padding not counted.", MODEL
)
BATCH_SIZE = MetricSpec(
    "inferlane_batch_size_rows", MetricKind.HISTOGRAM, "Rows per batch, padding not counted.", MODEL, SIZE_BOUNDS
)
BATCH_REQUESTS = MetricSpec(
    "inferlane_batch_requests", MetricKind.HISTOGRAM, "Requests joined per batch.", MODEL, SIZE_BOUNDS
)
BATCH_FILL_RATIO = MetricSpec(
    "inferlane_batch_fill_ratio",
    MetricKind.HISTOGRAM,
    "Rows of a batch divided by the rows of its bucket.",
    MODEL,
    FILL_RATIO_BOUNDS,
)
BUCKET_DISPATCHES = MetricSpec(
    "inferlane_bucket_dispatches_total", MetricKind.COUNTER, "Batches run per bucket.", (*MODEL, "bucket")
)
BUCKET_ROWS = MetricSpec(
    "inferlane_bucket_rows_total",
    MetricKind.COUNTER,
    "Rows run per bucket, padding not counted.",
    (*MODEL, "bucket"),
)
BUCKET_PADDED_ROWS = MetricSpec(
    "inferlane_bucket_padded_rows_total",
    MetricKind.COUNTER,
    "Rows run per bucket with padding; padding waste is 1 - rows / padded rows.",
    (*MODEL, "bucket"),
)
BUCKET_STAGE = MetricSpec(
    "inferlane_bucket_stage_seconds_total",
    MetricKind.COUNTER,
    "Time that the bucket's batches spent in each stage on their lane; per batch when divided by the dispatches.",
    (*MODEL, "bucket", "stage"),
)
GRAPH_REPLAYS = MetricSpec(
    "inferlane_graph_replays_total",
    MetricKind.COUNTER,
    "Batches that a CUDA Graph ran, per bucket.",
    (*MODEL, "bucket"),
)
EAGER_RUNS = MetricSpec(
    "inferlane_eager_runs_total",
    MetricKind.COUNTER,
    "Batches that a lane on a GPU enqueued without a CUDA Graph, per bucket.",
    (*MODEL, "bucket"),
)
GRAPHS_MISSING = MetricSpec(
    "inferlane_graphs_missing",
    MetricKind.GAUGE,
    "Lanes on which the bucket has no CUDA Graph and runs eagerly, by reason.",
    (*MODEL, "bucket", "reason"),
)
COPIED_BYTES = MetricSpec(
    "inferlane_copied_bytes_total",
    MetricKind.COUNTER,
    "Bytes that the lanes copied to the device (h2d) and from it (d2h), padding included.",
    (*MODEL, "direction"),
)
DEVICE_MEMORY = MetricSpec(
    "inferlane_device_memory_bytes",
    MetricKind.GAUGE,
    "Device memory that the model holds, by owner, over all of its lanes.",
    (*MODEL, "owner"),
)
BUCKETS_UNSERVED = MetricSpec(
    "inferlane_buckets_unserved",
    MetricKind.GAUGE,
    "Buckets that no batch may use, because they failed a check at start-up, by reason; the index says more.",
    (*MODEL, "bucket", "reason"),
)
STARTUP = MetricSpec(
    "inferlane_startup_seconds",
    MetricKind.GAUGE,
    "Time that each phase of the model's latest start-up took; the phases follow each other.",
    (*MODEL, "phase"),
)
LANE_BUSY = MetricSpec(
    "inferlane_lane_busy_seconds_total",
    MetricKind.COUNTER,
    "Time during which a lane held at least one batch; overlapping batches count once.",
    (*MODEL, "lane"),
)
QUEUE_REQUESTS = MetricSpec("inferlane_queue_requests", MetricKind.GAUGE, "Requests that wait for a lane now.", MODEL)
QUEUE_BYTES = MetricSpec(
    "inferlane_queue_bytes", MetricKind.GAUGE, "Input bytes of the requests that wait for a lane now.", MODEL
)
IN_FLIGHT_REQUESTS = MetricSpec(
    "inferlane_in_flight_requests",
    MetricKind.GAUGE,
    "Requests that wait for a lane or are on one now: neither those whose body still arrives nor answers being sent.",
    MODEL,
)
LANES = MetricSpec("inferlane_lanes", MetricKind.GAUGE, "Lanes of the model.", MODEL)
LANES_BUSY = MetricSpec("inferlane_lanes_busy", MetricKind.GAUGE, "Lanes that run a batch now.", MODEL)
MODEL_LOADED = MetricSpec(
    "inferlane_model_loaded", MetricKind.GAUGE, "1 while the model version is loaded, 0 after it was unloaded.", MODEL
)
UNATTRIBUTED_FAILURES = MetricSpec(
    "inferlane_unattributed_failures_total",
    MetricKind.COUNTER,
    "Failed requests that belong to no served model, such as those for unknown names.",
    ("reason",),
)
STREAMS = MetricSpec("inferlane_streams", MetricKind.GAUGE, "WebSocket streams that are open now.", ())
DROPPED_FRAMES = MetricSpec(
    "inferlane_stream_frames_dropped_total",
    MetricKind.COUNTER,
    "Frames of streams that gave way to newer ones; all others are requests of their models.",
    (),
)
LOOP_LAG = MetricSpec(
    "inferlane_event_loop_lag_seconds",
    MetricKind.HISTOGRAM,
    "How late an event loop ran a timer; ten samples per second of every process that has one.",
    (),
    LATENCY_BOUNDS_S,
)
FRONT_ENDS = MetricSpec(
    "inferlane_front_ends",
    MetricKind.GAUGE,
    "Front ends in processes of their own that are connected to the engine; 0 where one process is all.",
    (),
)
FRONT_END_HELD = MetricSpec(
    "inferlane_front_end_held_bytes",
    MetricKind.GAUGE,
    "Shared memory that requests of the front end hold, slots whole; at most its part of INFERLANE_ARENA_BYTES.",
    ("process",),
)
PROCESS_RESTARTS = MetricSpec(
    "inferlane_process_restarts_total",
    MetricKind.COUNTER,
    "How often the supervisor has started the process again: engine, front_end_0, and so on.",
    ("process",),
)

OWN = (
    REQUEST_DURATION,
    REQUEST_STAGE,
    REQUESTS,
    INFERENCE_ROWS,
    BATCH_SIZE,
    BATCH_REQUESTS,
    BATCH_FILL_RATIO,
    BUCKET_DISPATCHES,
    BUCKET_ROWS,
    BUCKET_PADDED_ROWS,
    BUCKET_STAGE,
    GRAPH_REPLAYS,
    EAGER_RUNS,
    GRAPHS_MISSING,
    COPIED_BYTES,
    DEVICE_MEMORY,
    BUCKETS_UNSERVED,
    STARTUP,
    LANE_BUSY,
    QUEUE_REQUESTS,
    QUEUE_BYTES,
    IN_FLIGHT_REQUESTS,
    LANES,
    LANES_BUSY,
    MODEL_LOADED,
    UNATTRIBUTED_FAILURES,
    STREAMS,
    DROPPED_FRAMES,
    LOOP_LAG,
    FRONT_ENDS,
    FRONT_END_HELD,
    PROCESS_RESTARTS,
    *GPU_OWN,
)


def _triton(name: str, text: str, *labels: str) -> MetricSpec:
    """A counter by Triton's name: of unknown type, since OpenMetrics allows no counter without `_total`."""
    return MetricSpec(f"nv_inference_{name}", MetricKind.UNKNOWN, text, (*MODEL, *labels))


TRITON_SUCCESS = _triton("request_success", "Answered requests.")
TRITON_FAILURE = _triton("request_failure", "Failed requests by Triton's reason; refusals are REJECTED.", "reason")
TRITON_COUNT = _triton("count", "Rows of answered requests.")
TRITON_EXEC_COUNT = _triton("exec_count", "Batches run.")
TRITON_REQUEST_US = _triton("request_duration_us", "Time of answered requests, in microseconds.")
TRITON_QUEUE_US = _triton("queue_duration_us", "Time from the queue to the lane's start, in microseconds.")
TRITON_INPUT_US = _triton("compute_input_duration_us", "Time of copying rows in, in microseconds.")
TRITON_INFER_US = _triton("compute_infer_duration_us", "Time of running the model, in microseconds.")
TRITON_OUTPUT_US = _triton("compute_output_duration_us", "Time of copying rows out, in microseconds.")
TRITON_PENDING = MetricSpec(
    "nv_inference_pending_request_count", MetricKind.GAUGE, "Requests that wait for a lane now.", MODEL
)

TRITON = (
    TRITON_SUCCESS,
    TRITON_FAILURE,
    TRITON_COUNT,
    TRITON_EXEC_COUNT,
    TRITON_REQUEST_US,
    TRITON_QUEUE_US,
    TRITON_INPUT_US,
    TRITON_INFER_US,
    TRITON_OUTPUT_US,
    TRITON_PENDING,
    *GPU_TRITON,
)
