// The page: one section per verb, answers as bars. The model runs in model.js, in its own thread.
import { bars, el, percent } from "./charts.js";

const worker = new Worker("model.js", { type: "module" });
const waiting = new Map();
const find = (selector, inside = document) => inside.querySelector(selector);
const say = (text) => (find("#state").textContent = text);
let count = 0;

function ask(verb, given) {
  return new Promise((resolve, reject) => {
    waiting.set(++count, { resolve, reject });
    worker.postMessage({ id: count, verb, given: given ?? {} });
  });
}

worker.onmessage = ({ data }) => {
  if (data.progress !== undefined) return void (find("#progress").value = data.progress);
  if (data.searched !== undefined) return void say(`Reading your texts: ${percent(data.searched)}`);
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error === undefined) resolve(data.answer);
  else reject(new Error(data.error));
};
worker.onerror = () => say("This browser cannot run the model.");

// The bars that answer what is in the fields of a verb.
const answers = {
  async fill(given) {
    const found = await ask("fill", given);
    return bars(found.map(({ text, probability }) => ({ name: text, value: probability })));
  },
  async classify(given) {
    const found = await ask("classify", given);
    return bars(found.sort((a, b) => b.value - a.value).map(({ label, value, isScore }) => (
      isScore ? { name: label, value: 0, shown: value.toFixed(3) } : { name: label, value })), 1);
  },
  async search({ query, texts }) {
    const lines = texts.split("\n").filter((text) => text.trim());
    if (!lines.length) throw new Error("Put a text on each line.");
    const found = await ask("search", { query, texts: lines });
    return bars(found.map(({ text, score }) => ({ name: text, value: score, shown: score.toFixed(3) })), 1);
  },
};

async function submit(section, verb) {
  const result = find(".result", section);
  if (result.classList.contains("waiting")) return;
  result.classList.add("waiting");
  const start = performance.now();
  try {
    result.replaceChildren(await answers[verb](Object.fromEntries(new FormData(find("form", section)))));
    say(`Answered in ${(performance.now() - start).toFixed(0)} ms.`);
  } catch (error) {
    result.replaceChildren();
    say(error.message);
  }
  result.classList.remove("waiting");
}

function open(verb) {
  for (const button of find("#verbs").children) {
    const isOpen = button.dataset.verb === verb;
    button.setAttribute("aria-pressed", String(isOpen));
    find(`#${button.dataset.verb}`).hidden = !isOpen;
  }
}

async function begin() {
  say("Loading the model …");
  find("#progress").hidden = false;
  const started = performance.now();
  const { settings, bytes } = await ask("load");
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  find("#progress").hidden = true;
  find("#size").textContent = `, ${(bytes / 1e6).toFixed(1)} MB in all,`;
  for (const verb of settings.verbs) {
    const section = find(`#${verb}`);
    find("#verbs").append(el("button", { type: "button", "data-verb": verb, onclick: () => open(verb) },
      section.getAttribute("aria-label")));
    find("form", section).onsubmit = (event) => {
      event.preventDefault();
      submit(section, verb);
    };
  }
  for (const area of document.querySelectorAll("textarea")) {
    area.onkeydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) area.form.requestSubmit();
    };
  }
  find("#blank").onclick = () => {
    const area = find("#fill textarea");
    area.setRangeText("[MASK]", area.selectionStart, area.selectionEnd, "end");
    area.focus();
  };
  find("#second").hidden = settings.compares_texts === false;
  if (settings.compares_texts) find("#second textarea").value = "The film made us laugh.";
  find("#verbs").hidden = settings.verbs.length < 2;
  open(settings.verbs[0]);
  await submit(find(`#${settings.verbs[0]}`), settings.verbs[0]);
  say(`${settings.name}: ready in ${seconds} s.`);
}

begin().catch((error) => say(`The model cannot be loaded: ${error.message}`));
window.litebert = { ask }; // for the console: await litebert.ask("embed", {text: "a cat"})
