// Drawings of the playground and of exported pages: elements, bars, curves, a map.
// What shows a user's text has dir="auto": its first letter says where it begins.

export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export const percent = (p) => (p > 0 && p < 0.0005 ? "< 0.1 %"
  : `${(100 * p).toFixed(p < 0.1 ? 1 : 0)} %`);

// Rows of {name, value, shown, more}; the widest bar is the largest value, or `full`.
export function bars(rows, full) {
  const widest = full ?? Math.max(...rows.map((row) => row.value), 1e-9);
  return el("ol", { class: "bars" }, ...rows.map((row) => {
    const bar = el("i");
    bar.style.width = `${100 * Math.max(0, row.value) / widest}%`;
    return el("li", {},
      el("span", { class: "name", dir: "auto" }, row.name),
      el("span", { class: "value" }, row.shown ?? percent(row.value)),
      el("span", { class: "bar", "aria-hidden": "true" }, bar),
      ...(row.more ? [el("span", { class: "more", dir: "auto" }, row.more)] : []));
  }));
}

// Words of {text, value, shown}, the larger the value the darker.
export function tinted(words) {
  const largest = Math.max(...words.map((word) => Math.abs(word.value)), 1e-9);
  return el("p", { class: "tinted", dir: "auto" }, ...words.map((word) => {
    const found = el("span", { class: word.value < 0 ? "against" : "" }, word.text,
      el("small", { dir: "ltr" }, word.shown));
    found.style.setProperty("--share", Math.abs(word.value) / largest);
    return found;
  }));
}

// A curve through values, one per step; `limit` is a dashed line, dots below it are red.
export function curve(title, caption, values, { low, high, limit, first = 1 }) {
  const [width, height, left, bottom] = [360, 190, 40, 26];
  const x = (i) => left + (width - left - 12) * (values.length === 1 ? 0.5 : i / (values.length - 1));
  const y = (v) => 10 + (height - bottom - 10) * (1 - (v - low) / (high - low));
  const ticks = [low, (low + high) / 2, high];
  const every = Math.ceil(values.length / 12);
  const label = `${title}: ${values.map((v) => v.toFixed(2)).join(", ")}`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    ...ticks.flatMap((tick) => [
      svg("line", { class: "grid", x1: left, x2: width, y1: y(tick), y2: y(tick) }),
      svg("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick)),
    ]),
    ...(limit === undefined ? [] : [svg("line",
      { class: "limit", x1: left, x2: width, y1: y(limit), y2: y(limit) })]),
    svg("path", { class: "curve", d: "M" + values.map((v, i) => `${x(i)} ${y(v)}`).join("L") }),
    ...values.flatMap((v, i) => [
      svg("circle", { class: v < limit ? "dot bad" : "dot", cx: x(i), cy: y(v), r: 5 },
        svg("title", {}, v.toFixed(3))),
      ...(i % every ? [] : [svg("text",
        { x: x(i), y: height - 6, "text-anchor": "middle" }, String(i + first))]),
    ]));
  return el("figure", { class: "curve-box" }, el("h2", {}, title), drawing, el("figcaption", {}, caption));
}

const short = (value) => (Math.abs(value) >= 10 ? value.toFixed(0) : value.toFixed(1));

// Points on their first two principal components, numbered as in the list; the search is red.
export function map(vectors, texts, target) {
  const points = flat(target ? [...vectors, target] : vectors);
  const [width, height, edge] = [520, 360, 26];
  const scale = (axis, size) => {
    const all = points.map((point) => point[axis]);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    return (value) => edge + (size - 2 * edge) * (high > low ? (value - low) / (high - low) : 0.5);
  };
  const [x, y] = [scale(0, width), scale(1, height)];
  const label = `Map of ${texts.length} texts; the list below has their numbers`;
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("rect", { x: 1, y: 1, width: width - 2, height: height - 2, rx: 6, fill: "none",
      class: "grid" }),
    ...points.map((point, i) => svg("circle", { class: i < texts.length ? "dot" : "dot bad",
      cx: x(point[0]), cy: y(point[1]), r: 6 }, svg("title", {}, texts[i] ?? "your search"))),
    ...labels(points.map((point) => [x(point[0]), y(point[1])]), texts.length)
      .map(({ left, top, text }) => svg("text", { class: "ink", y: top + 4,
        x: left + (left > width - 110 ? -10 : 10),
        "text-anchor": left > width - 110 ? "end" : "start" }, text)));
}

// One label for points that overlap.
function labels(points, numTexts) {
  const found = [];
  points.forEach(([left, top], i) => {
    const name = i < numTexts ? String(i + 1) : "your search";
    const near = found.find((one) => Math.hypot(one.left - left, one.top - top) < 14);
    if (near) near.text += `, ${name}`;
    else found.push({ left, top, text: name });
  });
  return found;
}

// Principal components by power iteration on the Gram matrix: few texts, long vectors.
function flat(vectors) {
  const mean = vectors[0].map((_, d) => sum(vectors.map((v) => v[d])) / vectors.length);
  const centred = vectors.map((v) => v.map((x, d) => x - mean[d]));
  const gram = centred.map((a) => centred.map((b) => dot(a, b)));
  const axes = [0, 1].map((axis) => {
    let v = gram.map((_, i) => Math.cos(1 + i * (axis + 1.7)));
    for (let round = 0; round < 200; round++) {
      v = gram.map((row) => dot(row, v));
      const length = Math.hypot(...v) || 1;
      v = v.map((value) => value / length);
    }
    const size = dot(v, gram.map((row) => dot(row, v)));
    for (let i = 0; i < v.length; i++)
      for (let j = 0; j < v.length; j++) gram[i][j] -= size * v[i] * v[j];
    return v.map((value) => value * Math.sqrt(Math.max(size, 0)));
  });
  return vectors.map((_, i) => [axes[0][i], axes[1][i]]);
}

export function cosine(a, b) {
  return dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);
}

const dot = (a, b) => sum(a.map((value, i) => value * b[i]));
const sum = (values) => values.reduce((total, value) => total + value, 0);
