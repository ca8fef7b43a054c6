// Elements from data, and a live tree brought to what it should be. Texts become text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "rect", "line", "path", "polyline", "title"]);
const OWNED_BY_THE_READER = new Set(["open"]);

/** An element with attributes (false and null leave one out, true leaves it empty) and children, nested as they like. */
export function el(tag, attributes = {}, ...children) {
  const made = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false && child !== "") made.append(child);
  }
  return made;
}

/** Replaces what `parent` holds, and keeps every element that stays: focus, selection and opened parts survive. */
export function show(parent, ...children) {
  morphChildren(parent, el("div", {}, ...children));
}

function morphChildren(live, wanted) {
  const keyed = new Map([...live.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = live.firstChild;
  for (const next of [...wanted.childNodes]) {
    const key = keyOf(next);
    const match = key ? keyed.get(key) : isSameKind(at, next) ? at : null;
    if (!match) {
      live.insertBefore(next, at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else live.insertBefore(match, at);
    morph(match, next);
  }
  while (at) {
    const gone = at;
    at = at.nextSibling;
    gone.remove();
  }
}

function morph(live, wanted) {
  if (live.nodeType !== Node.ELEMENT_NODE) {
    if (live.data !== wanted.data) live.data = wanted.data;
    return;
  }
  for (const { name, value } of [...wanted.attributes]) {
    if (!OWNED_BY_THE_READER.has(name) && live.getAttribute(name) !== value) live.setAttribute(name, value);
  }
  for (const { name } of [...live.attributes]) {
    if (!OWNED_BY_THE_READER.has(name) && !wanted.hasAttribute(name)) live.removeAttribute(name);
  }
  morphChildren(live, wanted);
}

function isSameKind(live, wanted) {
  return live && live.nodeType === wanted.nodeType && live.nodeName === wanted.nodeName && !keyOf(live);
}

function keyOf(node) {
  return node.dataset?.key;
}
