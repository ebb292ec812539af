// The attention of one head in one step: a table of query pieces by key pieces.
import { el, percent } from "/page/charts.js";

// A piece for people to read; one that is only white space keeps its sign.
export const plain = (piece) => piece.replace("▁", "") || piece;

// `found` is the answer of /v1/attention for step 1; `look` asks for another step.
export function attention(found, numSteps, look) {
  let [shown, step, head, latest] = [found, 1, 0, new AbortController()];
  const told = el("p", { class: "quiet" });
  const drawing = el("div", { class: "scroll", tabindex: 0, role: "region",
    "aria-label": "Attention by head and step" });
  const draw = () => {
    told.textContent = summary(shown.pieces, shown.heads[head]);
    drawing.replaceChildren(table(shown.pieces, shown.heads[head]));
  };
  const steps = choice("Step", numSteps, async (chosen, select) => {
    latest.abort();
    const { signal } = latest = new AbortController();
    drawing.classList.add("waiting");
    try {
      shown = await look(chosen, signal);
      step = chosen;
      draw();
    } catch (error) {
      if (signal.aborted) return;  // by the next choice
      select.value = step;
      told.textContent = error.message;
    }
    drawing.classList.remove("waiting");
  });
  const heads = choice("Head", shown.heads.length, (chosen) => { head = chosen - 1; draw(); });
  draw();
  return el("section", { class: "attention" }, el("h2", {}, "Attention by head and step"),
    el("div", { class: "row" }, steps, heads), told, drawing);
}

function choice(label, count, act) {
  const id = `attention-${label.toLowerCase()}`;
  const select = el("select", { id, onchange: () => act(Number(select.value), select) },
    ...Array.from({ length: count }, (_, i) => el("option", { value: i + 1 }, String(i + 1))));
  return el("span", { class: "choice" }, el("label", { for: id }, label), select);
}

// The two places that get the most attention of a head, averaged over the query pieces.
function summary(pieces, shares) {
  const last = pieces.length - 1;
  const mean = (at) => shares.reduce((total, row, i) => total + (row[at(i)] ?? 0), 0) /
    shares.length;
  const places = [
    ["the piece itself", mean((i) => i)], ["the piece before", mean((i) => i - 1)],
    ["the piece after", mean((i) => i + 1)], [pieces[0], mean(() => 0)],
    [pieces[last], mean(() => last)],
  ].sort((a, b) => b[1] - a[1]);
  return `Of this head's attention, ${percent(places[0][1])} goes to ${places[0][0]} and ` +
    `${percent(places[1][1])} to ${places[1][0]}. Rows are queries, columns are keys; figures ` +
    "are percent.";
}

function table(pieces, shares) {
  const cell = (share) => {
    const found = el("td", {}, (100 * share).toFixed(0));
    found.style.setProperty("--share", share);
    return found;
  };
  return el("table", { class: "heads" },
    el("thead", {}, el("tr", {}, el("th", {}, "piece"), ...pieces.map((piece) => (
      el("th", { scope: "col" }, el("span", {}, plain(piece))))))),
    el("tbody", {}, ...pieces.map((piece, i) => el("tr", {},
      el("th", { scope: "row" }, plain(piece)), ...shares[i].map(cell)))));
}
