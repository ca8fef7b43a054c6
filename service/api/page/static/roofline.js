// Layers under the roof: what each reaches against what the device was seen to do at best, both axes logarithmic.

import { axis, colour, draw } from "./charts.js";
import { count, duration, scaled, share } from "./format.js";

const TONES = {
  compute: "device",
  memory: "intake",
  balanced: "answer",
  "latency floor": "muted",
  inefficient: "bad",
  unknown: "muted",
};

/** Draws the layers of one bucket whose arithmetic and bytes are known. */
export async function drawRoofline(place, table, peaks) {
  const known = table.layers.filter((layer) => layer.intensity > 0 && layer.flops > 0 && layer.time_s > 0);
  const span = reach(known, peaks);
  const roofs = peaks?.bytes_per_s ? roofTraces(peaks, span, known) : [];
  const layers = Object.keys(TONES).map((kind) => points(kind, known));
  const traces = [...roofs, ...layers].filter((trace) => trace.x.length);
  const rates = traces.flatMap((trace) => trace.y);
  const heights = rates.length ? [Math.min(...rates) / 2, Math.max(...rates) * 2] : [1e9, 1e12];
  await draw(place, traces, {
    height: 400,
    xaxis: logAxis("FLOPs per byte", span),
    yaxis: logAxis("FLOP/s", heights),
  });
}

/** A logarithmic axis whose ticks are plain texts: exponents would be raised by inline styles, which are forbidden. */
function logAxis(title, [low, high]) {
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const decades = Array.from({ length: Math.max(0, last - first + 1) }, (_, step) => 10 ** (first + step));
  return axis({
    type: "log",
    title: { text: title },
    range: [Math.log10(low), Math.log10(high)],
    tickvals: decades,
    ticktext: decades.map((decade) => scaled(decade, "")),
  });
}

function points(kind, layers) {
  const chosen = layers.filter((layer) => layer.class === kind);
  return {
    type: "scatter",
    mode: "markers",
    name: kind,
    x: chosen.map((layer) => layer.intensity),
    y: chosen.map((layer) => layer.flops / layer.time_s),
    text: chosen.map(
      (layer) =>
        `${plain(layer.name)}<br>${duration(layer.time_s)}, ${share(layer.share)} of the time<br>${scaled(layer.flops / layer.time_s, "FLOP/s")} at ${count(layer.intensity)} FLOPs/byte`,
    ),
    hovertemplate: "%{text}<extra></extra>",
    marker: {
      color: colour(TONES[kind]),
      size: chosen.map((layer) => 8 + 26 * Math.sqrt(layer.share)),
      opacity: 0.75,
      line: { width: 1, color: colour("surface") },
    },
  };
}

function roofTraces(peaks, [low, high], layers) {
  const used = new Set(layers.map((layer) => layer.dtype));
  const all = Object.entries(peaks.flops_per_s).filter(([, rate]) => rate);
  const wanted = all.filter(([dtype]) => used.has(dtype));
  return (wanted.length ? wanted : all).map(([dtype, rate]) => {
    const knee = rate / peaks.bytes_per_s;
    const x = [low, knee, high].filter((at) => at >= low && at <= high);
    return {
      type: "scatter",
      mode: "lines",
      name: `${plain(dtype)} roof, ${scaled(rate, "FLOP/s")}, ${scaled(peaks.bytes_per_s, "B/s")}`,
      x,
      y: x.map((at) => Math.min(rate, at * peaks.bytes_per_s)),
      line: { color: colour("ink"), width: 1.5 },
      hoverinfo: "name",
    };
  });
}

function reach(layers, peaks) {
  const at = layers.map((layer) => layer.intensity);
  if (peaks?.bytes_per_s)
    at.push(
      ...Object.values(peaks.flops_per_s)
        .filter(Boolean)
        .map((rate) => rate / peaks.bytes_per_s),
    );
  return at.length ? [Math.min(...at) / 3, Math.max(...at) * 3] : [0.1, 1000];
}

/** A name without what Plotly reads as markup. */
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
