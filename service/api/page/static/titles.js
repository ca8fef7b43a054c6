// What the stable ids of the document are called on the page.

export const CLASSES = {
  overload: "More is asked than the server can do",
  "batch-formation-delay": "Requests wait for company",
  "batch-too-small": "Batches are too small",
  "cpu-preprocess": "The CPU prepares media too slowly",
  "copy-bandwidth": "Copies to and from the device",
  "pageable-or-allocating": "Pageable copies, or allocations while serving",
  "launch-bound": "Launching takes longer than computing",
  "graph-miss": "Batches run without their graph",
  "not-capturable": "No graph can be captured",
  "compute-bound": "The model's arithmetic",
  "memory-bound": "The device's memory",
  "inefficient-layers": "Layers far below their roof",
  "gpu-idle-gaps": "The GPU idles while work waits",
  "lane-count": "The number of lanes",
  "padding-waste": "Padding is computed",
  "wrong-profile": "Another profile would be faster",
  "shape-switching": "Changes of shape",
  "python-bound": "Python on the event loop",
  "client-limited": "The clients do not ask for more",
  "network-payload": "Payloads on the network",
  clocks: "The device's clocks",
  interference: "Something else uses the device",
  "cpu-starved": "The process is short of CPU",
  "cold-start": "First batches are slow",
  "bursty-arrivals": "Requests arrive in bursts",
  "invalid-measurement": "The window tells too little",
};

export const STAGES = {
  read: ["Read", "intake", "from the request's first byte to its last"],
  parse: ["Parse", "intake", "header and tensors checked, or the media's head"],
  prepare: ["Prepare", "intake", "decode, resize, tokenize"],
  formation: ["Formation", "waiting", "a lane had room; the batch was kept open"],
  backlog: ["Backlog", "waiting", "no lane had room"],
  dispatch: ["Dispatch", "device", "from the queue to its lane"],
  h2d: ["Copy in", "device", "gathered, and copied to the device"],
  compute: ["Compute", "device", "the model itself"],
  d2h: ["Copy out", "device", "results back to the host"],
  complete: ["Complete", "answer", "from the lane back to the event loop"],
  render: ["Render", "answer", "results into the answer's body"],
  send: ["Send", "answer", "handed to the socket"],
};

export const GROUPS = { intake: "Taking in", waiting: "Waiting", device: "Lane and device", answer: "Answering" };

export const STATIONS = {
  event_loop: "Event loop",
  engine_loop: "Engine's event loop",
  thread_pool: "Thread pool",
  batcher: "Batcher",
  h2d: "Copies in",
  device: "Device",
  d2h: "Copies out",
  encode: "Encoding",
};
