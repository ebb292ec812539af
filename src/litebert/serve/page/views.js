// How the page asks the server for each verb, and how it shows the results. Titles, fields and
// examples come from the records of the verbs; a verb without an entry here is shown as a table.
import { bars, cosine, curve, el, map, percent, tinted } from "/page/charts.js";

const MAX_TEXTS = 32;  // per request
const ON_REQUEST = true;  // marks a call that is made when its button is pressed

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

const quiet = (text) => el("p", { class: "quiet" }, text);

const ranked = (names, values) => names
  .map((name, i) => ({ name, value: values[i] })).sort((a, b) => b.value - a.value);

const fill = {
  insert: "[MASK]",
  calls: ({ text }) => [["fill", { text, top: 8 }]],
  show: ([found]) => [bars(found.map((one) => ({
    name: one.words.join(" … "), value: one.probability, more: one.text,
  })))],
};

const answer = {
  calls: ({ question, context }) => [["answer", { question, context, top: 5 }]],
  show: ([found], { context }) => {
    if (!found.length) return [el("p", { class: "big" }, "The model finds no answer in this passage.")];
    const best = found[0];
    const [before, span, after] = best.text
      ? [slice(context, 0, best.start), slice(context, best.start, best.stop),
        slice(context, best.stop)]
      : [context, "", ""];
    return [
      el("p", { class: "passage", dir: "auto" }, before, ...(span ? [el("mark", {}, span)] : []), after),
      bars(found.map((one) => ({
        name: one.text || "no answer in this passage", value: one.probability,
      })), 1),
    ];
  },
};

// Offsets count characters as Python does: code points, not UTF-16 units.
const slice = (text, start, stop) => Array.from(text).slice(start, stop).join("");

const classify = {
  suitsField: (name, model) => name !== "pairs" || model.compares_texts !== false,
  suits: ({ pairs }, { compares_texts: compares }) => compares === null || compares === Boolean(pairs),
  calls: (entered) => {
    const [texts, pairs] = [lines(entered.texts), lines(entered.pairs)];
    return [["classify", pairs.length ? { texts, pairs } : { texts }],
      ["explain", explained(entered, 0), ON_REQUEST]];
  },
  show: ([found], entered, ask) => found.map((one, i) => el("section", {},
    el("h2", { dir: "auto" }, lines(entered.texts)[i]),
    measured(one.values),
    explanation(() => ask("explain", explained(entered, i))))),
};

const explained = ({ texts, pairs }, i) => ({ verb: "classify",
  texts: [lines(texts)[i] ?? "", ...lines(pairs).slice(i, i + 1)] });

// A bar for each label; a single number, such as a score, has no known range for a bar.
function measured(values) {
  const [names, numbers] = [Object.keys(values), Object.values(values)];
  return names.length > 1 ? bars(ranked(names, numbers), 1)
    : el("p", { class: "big" }, `${names[0]} `, el("strong", {}, numbers[0].toFixed(3)));
}

// A button that shows how much each word adds to the answer.
function explanation(request) {
  const place = el("div", { role: "status" });
  const show = async () => {
    place.replaceChildren(quiet("Computing …"));
    try {
      const found = await request();
      place.replaceChildren(
        tinted(found.words.map((one) => ({ text: one.word, value: one.attribution,
          shown: one.attribution.toPrecision(2) }))),
        el("p", { class: "quiet" }, "How much each word adds to “",
          el("bdi", {}, found.answer), `” (${found.kind}): blue for it, red against it.`));
    } catch (error) {
      place.replaceChildren(el("p", { class: "error" }, error.message));
    }
  };
  return el("section", {},
    el("button", { type: "button", class: "plain", onclick: show }, "Explain by word"), place);
}

const tag = {
  calls: ({ texts }) => [["tag", { texts: lines(texts) }]],
  show: ([found]) => found.map(({ words }) => el("p", { class: "tagged", dir: "auto" }, ...words.map((one) => el(
    "span", { class: one.tag === "O" ? "" : "on" }, one.word, el("small", {}, one.tag))))),
};

const choose = {
  calls: ({ context, question, choices }) => [["choose", { question, choices: lines(choices), context }]],
  show: ([found], { choices }) => [bars(ranked(lines(choices), found.probabilities), 1)],
};

const order = {
  calls: ({ first }) => [["order", { first }]],
  show: ([{ joins }]) => {
    const all = [joins[0].first, ...joins.map((join) => join.second)];
    const probabilities = joins.map((join) => join.probability);
    const breaks = probabilities.filter((p) => p < BREAK).length;
    return [
      el("p", { class: "big" }, breaks ? `The text breaks ${breaks === 1 ? "once" : `${breaks} times`}.`
        : "No sentence breaks the order."),
      ...(probabilities.length < 2 ? [] : [curve("Coherence",
        "Probability that a sentence follows the one before it.", probabilities,
        { low: 0, high: 1, limit: BREAK, first: 2 })]),
      el("ol", { class: "sentences" }, ...all.flatMap((sentence, i) => [
        ...(i ? [joint(probabilities[i - 1])] : []), el("li", { dir: "auto" }, sentence),
      ])),
    ];
  },
};

const BREAK = 0.5;  // below, the two sentences are more likely swapped, as for `litebert order`

const joint = (p) => (p < BREAK ? el("li", { class: "join break" }, `${percent(p)}, a break`)
  : el("li", { class: "join" }, percent(p)));

const score = {
  calls: ({ text }) => [["score", { text }]],
  show: ([found]) => [
    el("p", { class: "big" }, `Perplexity ${found.perplexity.toPrecision(3)}`),
    tinted(found.words.map((one) => ({ text: one.word, value: -one.log_probability,
      shown: percent(Math.exp(one.log_probability)) }))),
    el("p", { class: "quiet" }, `Log-likelihood ${found.log_likelihood.toFixed(2)} nats. ` +
      "Under each word: its probability."),
  ],
};

const embeddings = {
  calls: ({ texts, query }) => {
    const all = [...lines(texts), query.trim()].filter(Boolean);
    return Array.from({ length: Math.ceil(all.length / MAX_TEXTS) }, (_, i) => (
      ["embed", { texts: all.slice(i * MAX_TEXTS, (i + 1) * MAX_TEXTS) }]));
  },
  show: (found, { texts }) => {
    const [all, vectors] = [lines(texts), found.flat()];
    const target = vectors[all.length];  // of the query, if there is one
    return [
      ...(target ? [el("h2", {}, "Nearest to your search"), bars(all
        .map((name, i) => ({ name: `${i + 1}. ${name}`, value: cosine(vectors[i], target) }))
        .map((row) => ({ ...row, shown: row.value.toFixed(3) }))
        .sort((a, b) => b.value - a.value).slice(0, 5), 1)] : []),
      ...(target && all.length > 5 ? [quiet(`The 5 nearest of ${all.length}.`)] : []),
      el("figure", {}, el("h2", {}, "Map"), map(vectors.slice(0, all.length), all, target),
        el("figcaption", {}, "The two directions in which these texts differ most.")),
      el("ol", { class: "quiet list" }, ...all.map((text) => el("li", { dir: "auto" }, text))),
    ];
  },
};

const OWN = { fill, answer, classify, tag, choose, order, score, embed: embeddings };

// The views by verb, given the forms of the verbs that the server knows.
export function views(forms) {
  const names = [...Object.keys(OWN), ...Object.keys(forms).filter((name) => !(name in OWN))];
  const all = names.map((name) => [name, { ...forms[name], ...tabular(name, forms[name]), ...OWN[name] }]);
  return Object.fromEntries(all);
}

// The view of a verb that has none of its own: a call with what was entered, and tables.
const tabular = (name, form) => ({
  calls: (entered) => [[name, Object.fromEntries(form.fields
    .map(({ name: field, isList }) => [field, isList ? lines(entered[field]) : entered[field].trim()])
    .filter(([, value]) => value.length))]],
  show: ([found], entered) => (form.takesList
    ? found.map((one, i) => el("section", {},
      el("h2", { dir: "auto" }, lines(entered[form.fields[0].name])[i]), ...table(one)))
    : table(found)),
});

// An answer of any shape: a row for each record, or for each field of one.
function table(found) {
  if (found === null || typeof found !== "object") return [el("p", { class: "big", dir: "auto" }, written(found))];
  const rows = Array.isArray(found) ? found : [found];
  const isOfRecords = rows.length > 0 && rows.every((row) => row && typeof row === "object");
  const records = isOfRecords ? rows : rows.map((value) => ({ value }));
  const names = [...new Set(records.flatMap((row) => Object.keys(row)))];
  return [el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Answer" },
    el("table", { class: "fields" },
      el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, ...records.map((row) => el("tr", {},
        ...names.map((name) => el("td", { dir: "auto" }, written(row[name]))))))))];
}

const written = (value) => (typeof value === "number" && !Number.isInteger(value)
  ? String(Number(value.toPrecision(4)))
  : typeof value === "object" && value !== null ? JSON.stringify(value) : String(value ?? ""));
