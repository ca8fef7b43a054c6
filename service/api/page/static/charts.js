// Plotly, fetched from this server when a chart is first wanted; pages do without where it is not installed.

const source = document.body.dataset.charts;
let loading = null;

/** Whether the server has the script. */
export const chartsOffered = Boolean(source);

/** Draws into `place`, or brings what is drawn there up to date. */
export async function draw(place, traces, layout) {
  const plotly = await load();
  await plotly.react(place, traces, { ...base(), ...layout }, { displayModeBar: false, responsive: true });
}

/** The colour that a custom property stands for now, as Plotly understands it. */
export function colour(name) {
  const probe = document.createElement("i");
  probe.hidden = true;
  probe.style.color = `var(--${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

/** An axis in the page's colours. */
export function axis(options) {
  return {
    color: colour("muted"),
    gridcolor: colour("line"),
    zeroline: false,
    automargin: true,
    fixedrange: true,
    ...options,
  };
}

function base() {
  const ink = colour("ink");
  return {
    autosize: true,
    font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: ink },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 56, r: 16, t: 8, b: 44 },
    hoverlabel: { bgcolor: colour("surface"), bordercolor: colour("line"), font: { color: ink } },
    legend: { orientation: "h", itemsizing: "constant", y: 1.02, yanchor: "bottom", x: 0, font: { color: ink } },
  };
}

function load() {
  loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => reject(new Error("the charts' script cannot be loaded"));
    document.head.append(script);
  });
  return loading;
}
