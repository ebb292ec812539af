// The playground: choose a model and a verb, fill in the form, see the answer and the call for it.
import { ask, curl, models, python, useKey } from "/page/api.js";
import { el } from "/page/charts.js";
import { VIEWS } from "/page/views.js";

const at = (id) => document.getElementById(id);
const tabs = document.querySelector("[role=tablist]");
const state = { models: [], model: null, verb: null, entered: {}, asked: 0 };

async function begin() {
  try {
    state.models = await models();
    at("key-row").hidden = true;
  } catch (error) {
    if (error.status !== 401 || !at("key-row").hidden) showError(error);  // not before a key was given
    if (error.status !== 401) return undefined;
    at("key-row").hidden = false;
    at("key").focus();
    return undefined;
  }
  if (!state.models.every((model) => model.ready)) {
    at("lead").textContent = "The model is loading …";
    setTimeout(begin, 500);
    return undefined;
  }
  at("model").replaceChildren(...state.models.map((m) => el("option", { value: m.id }, m.id)));
  return chooseModel(state.models[0].id);
}

function chooseModel(id) {
  const model = state.model = state.models.find((each) => each.id === id);
  const verbs = Object.keys(VIEWS).filter((verb) => verb === "steps" || model.verbs.includes(verb));
  const blocks = model.num_blocks === 1 ? "One shared block" : `${model.num_blocks} blocks`;
  at("facts").textContent =
    `${blocks}, ${model.num_steps} steps, vectors of ${model.hidden_size}.`;
  at("version").textContent = `Model version ${model.version}`;
  tabs.replaceChildren(...verbs.map((verb) => el("button", {
    type: "button", role: "tab", id: `tab-${verb}`, "aria-controls": "view",
    onclick: () => chooseVerb(verb),
  }, VIEWS[verb].title)));
  const wanted = location.hash.slice(1);
  chooseVerb(verbs.includes(wanted) ? wanted : verbs.includes(state.verb) ? state.verb : verbs[0]);
}

function chooseVerb(verb) {
  const view = VIEWS[state.verb = verb];
  state.asked++;  // an answer that is still to come belongs to what was chosen before
  history.replaceState(null, "", `#${verb}`);
  for (const tab of tabs.children) {
    const isChosen = tab.id === `tab-${verb}`;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
  }
  at("view").setAttribute("aria-labelledby", `tab-${verb}`);
  at("lead").textContent = view.lead;
  const entered = state.entered[verb] ??= { ...blank(view), ...view.examples[0] };
  at("form").replaceChildren(...view.fields.map((field) => fieldOf(field, entered)),
    buttons(view), examples(view));
  at("result").classList.remove("waiting");
  at("result").replaceChildren(el("p", { class: "empty" }, "The answer appears here."));
  showCode();
}

const blank = (view) => Object.fromEntries(view.fields.map((field) => [field.name, ""]));

function fieldOf(field, entered) {
  const input = el("textarea", { name: field.name, rows: field.rows, spellcheck: "false",
    maxlength: field.rows > 1 ? 10000 : 1000,
    oninput: () => { entered[field.name] = input.value; showCode(); } });
  input.value = entered[field.name];
  return el("label", {}, field.label, input);
}

function buttons(view) {
  const row = el("div", { class: "row" }, el("button", { class: "run" }, "Ask the model"));
  if (view.insert) row.append(el("button", { type: "button", class: "plain", onclick: () => {
    const input = at("form").querySelector("textarea");
    input.setRangeText(view.insert, input.selectionStart, input.selectionEnd, "end");
    input.dispatchEvent(new Event("input"));
    input.focus();
  } }, "Insert a blank"));
  row.append(el("kbd", {}, "Ctrl + Enter"));
  return row;
}

function examples(view) {
  return el("div", { class: "examples" }, el("span", {}, "Examples"),
    ...view.examples.map((example) => el("button", { type: "button", onclick: () => {
      state.entered[state.verb] = { ...blank(view), ...example };
      chooseVerb(state.verb);
      run();
    } }, shortened(Object.values(example)[0]))));
}

const shortened = (text) => (text.length > 70 ? `${text.slice(0, 70)} …` : text)
  .replaceAll("\n", " / ");

async function run() {
  const [view, kept, number] = [VIEWS[state.verb], state.entered[state.verb], ++state.asked];
  const entered = { ...kept };
  const missing = view.fields.find((field) => !field.optional && !entered[field.name].trim());
  const button = at("form").querySelector(".run");
  at("result").classList.add("waiting");
  button.setAttribute("aria-disabled", "true");
  try {
    if (missing) throw new Error(`“${missing.label}” is empty.`);
    const found = view.run ? await view.run(entered, state.model.id)
      : await ask(verbOf(view), { model: state.model.id, ...view.body(entered) });
    if (number === state.asked) at("result").replaceChildren(...view.show(found, entered, { kept, model: state.model.id }));
  } catch (error) {
    if (number === state.asked) showError(error);
  } finally {
    if (number === state.asked) {
      at("result").classList.remove("waiting");
      button.removeAttribute("aria-disabled");
    }
  }
}

const verbOf = (view) => view.verb ?? state.verb;

function showError(error) {
  at("result").replaceChildren(el("p", { class: "error" },
    error.code ? `${error.message} (${error.code})` : error.message));
}

function showCode() {
  const view = VIEWS[state.verb];
  const entered = state.entered[state.verb];
  const calls = view.calls?.(entered) ?? [[verbOf(view), view.body(entered)]];
  at("snippets").replaceChildren(...calls.flatMap(([verb, body]) => {
    const [full, suffix] = [{ model: state.model.id, ...body }, calls.length > 1 ? ` ${verb}` : ""];
    return [snippet(`Shell${suffix}`, curl(verb, full)),
      snippet(`Python${suffix}`, python(verb, full))];
  }));
}

function snippet(name, text) {
  return el("div", { class: "snippet" },
    el("div", { class: "bar" }, el("span", {}, name), el("button", { type: "button", class: "plain",
      onclick: () => copy(name, text) }, `Copy ${name}`)),
    el("pre", { tabindex: 0 }, text));
}

async function copy(name, text) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else copyBySelection(text);
  at("told").textContent = `${name} call copied.`;
}

// Pages over plain HTTP from another machine have no clipboard interface.
function copyBySelection(text) {
  const area = el("textarea", {});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

tabs.addEventListener("keydown", (event) => {
  const all = [...tabs.children];
  const now = all.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
  const to = { ArrowRight: now + 1, ArrowLeft: now - 1, Home: 0, End: all.length - 1 }[event.key];
  if (to === undefined) return;
  event.preventDefault();
  const next = all[(to + all.length) % all.length];
  next.click();
  next.focus();
});
at("result").addEventListener("change", showCode);
at("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
at("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); }
});
at("model").addEventListener("change", (event) => chooseModel(event.target.value));
at("key-row").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(at("key").value);
  begin();
});
begin();
