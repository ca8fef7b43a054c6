"""What is often believed of inference servers and does not hold, as the words that findings contradict it with."""

from __future__ import annotations

UTILISATION_IS_NOT_EFFICIENCY = (
    "GPU utilisation is not efficiency: it says that some kernel ran, however little of the GPU it used."
)
BUSY_IS_NOT_LOADED = (
    "A device that batches whatever waits is busy nearly all the time long before its limit; its load is throughput "
    "over what full batches would reach."
)
PRECISION_DOES_NOT_HELP_LAUNCHES = (
    "Lower precision will not help a launch-bound model: the host's launches take as long whatever the kernels compute."
)
PRECISION_IS_NOT_FASTER_BY_ITSELF = (
    "Lower precision is faster only for layers at a roof; reformats that it adds can cost more than it saves."
)
OVERLAP_SHORTENS_NO_REQUEST = (
    "Overlapping preprocessing or copies with computing raises throughput; it does not shorten one request."
)
GRAPH_MOVES_NO_BYTES = "A CUDA Graph removes launches, not copies: bytes take as long as before."
GRAPHS_DO_NOT_FIT_EVERYTHING = (
    "CUDA Graphs do not fit everything: sizes that depend on data, and plugins that wait or allocate, stay outside."
)
GRAPHS_ARE_OF_ONE_SHAPE = "A CUDA Graph is of one shape: dynamic shapes get graphs through buckets alone."
DYNAMIC_IS_NOT_UNLIMITED = (
    "A dynamic shape is not an unlimited one: one profile has one set of kernels, tuned for its optimum."
)
LANES_DO_NOT_MULTIPLY = "Lanes do not multiply a GPU that one of them fills: each batch then takes longer by as much."
DELAY_IS_NOT_THROUGHPUT = (
    "Waiting for larger batches adds no throughput to a server that is never idle while work waits: batches fill by "
    "themselves while lanes are busy."
)
LARGER_IS_NOT_CHEAPER = (
    "A larger batch is not cheaper per row once the device is full: its time then grows with the rows."
)
COMPUTE_IS_NOT_LATENCY = "The time on the GPU is not the latency: waiting, copies and the host's work come on top."
DEFAULTS_ARE_NOT_TUNED = "A default configuration is not a tuned one: profiles must be where the traffic is."
HOST_TIMERS_LIE = "Host timers around asynchronous calls measure launching, not computing: only device events tell."
QUEUE_IS_A_SYMPTOM = "A long queue is nearly always a symptom; the station that it waits for is the cause."
