// The page: one section per verb, answers as bars. The model runs in model.js, in its own thread.

const worker = new Worker("model.js", { type: "module" });
const waiting = new Map();
const find = (selector, inside = document) => inside.querySelector(selector);
let count = 0;

function ask(verb, given) {
  return new Promise((resolve, reject) => {
    waiting.set(++count, { resolve, reject });
    worker.postMessage({ id: count, verb, given });
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

const say = (text) => (find("#state").textContent = text);
const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

// Rows of {text, share, value}: a bar for the share, and the value as text.
function show(list, rows) {
  list.replaceChildren(
    ...rows.map(({ text, share, value }) => {
      const item = document.createElement("li");
      const meter = document.createElement("meter");
      meter.value = Math.max(0, share);
      meter.setAttribute("aria-hidden", "true");
      const label = document.createElement("span");
      label.textContent = text;
      const number = document.createElement("b");
      number.textContent = value;
      item.append(label, number, meter);
      return item;
    }),
  );
}

const answers = {
  async fill(section) {
    const found = await ask("fill", { text: find("textarea", section).value });
    return found.map(({ text, probability }) => ({
      text, share: probability, value: percent(probability),
    }));
  },
  async classify(section) {
    const found = await ask("classify", { text: find("textarea", section).value });
    return found.map(({ label, value, isScore }) => ({
      text: label, share: isScore ? 0 : value, value: isScore ? value.toFixed(3) : percent(value),
    }));
  },
  async search(section) {
    const texts = find("textarea", section).value.split("\n").filter((text) => text.trim());
    const found = await ask("search", { query: find("input", section).value, texts });
    return found.slice(0, 20).map(({ text, score }) => ({
      text, share: score, value: score.toFixed(3),
    }));
  },
};

async function submit(section, verb) {
  const button = find("button", section);
  button.disabled = true;
  const start = performance.now();
  try {
    show(find("ol", section), await answers[verb](section));
    say(`Answered in ${(performance.now() - start).toFixed(0)} ms.`);
  } catch (error) {
    show(find("ol", section), []);
    say(error.message);
  }
  button.disabled = false;
}

function open(verb) {
  for (const button of find("#verbs").children) {
    const isOpen = button.dataset.verb === verb;
    button.setAttribute("aria-pressed", String(isOpen));
    find(`#${button.dataset.verb}`).hidden = !isOpen;
  }
}

async function begin() {
  const started = performance.now();
  const { settings, bytes } = await ask("load");
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  find("#progress").hidden = true;
  find("#size").textContent = `${(bytes / 1e6).toFixed(1)} MB in all`;
  say(`${settings.name}: ready in ${seconds} s.`);
  for (const verb of settings.verbs) {
    const section = find(`#${verb}`);
    const button = document.createElement("button");
    button.textContent = find("h2", section).textContent;
    button.dataset.verb = verb;
    button.onclick = () => open(verb);
    find("#verbs").append(button);
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
    const area = find("#fill-text");
    area.setRangeText("[MASK]", area.selectionStart, area.selectionEnd, "end");
    area.focus();
  };
  find("#verbs").hidden = settings.verbs.length < 2;
  open(settings.verbs[0]);
  await submit(find(`#${settings.verbs[0]}`), settings.verbs[0]);
  say(`${settings.name}: ready in ${seconds} s.`);
}

begin().catch((error) => say(`The model cannot be loaded: ${error.message}`));
window.litebert = { ask }; // for the console: await litebert.ask("embed", {text: "a cat"})
