// The playground: choose a model and a verb, fill in the form, see the answer and the call for it.
import { ask, curl, forms, models, python, useKey } from "/page/api.js";
import { el } from "/page/charts.js";
import { views } from "/page/views.js";

const at = (id) => document.getElementById(id);
const tabs = document.querySelector("[role=tablist]");
const state = { models: [], model: null, verb: null, entered: {}, abort: new AbortController() };
let VIEWS = {};  // by verb
const tell = (text) => { at("told").textContent = text; };

// Read which models there are, until the server answers and has loaded them.
async function begin() {
  const again = (why) => { at("lead").textContent = why; setTimeout(begin, 500); };
  try {
    VIEWS = views(await forms());
    state.models = await models();
  } catch (error) {
    if (error.status !== 401) return again(error.message);
    if (!at("key-row").hidden) showError(error);  // not before a key was given
    at("key-row").hidden = false;
    return at("key").focus();
  }
  at("key-row").hidden = true;
  if (!state.models.every((model) => model.ready)) return again("The model is loading …");
  at("model").replaceChildren(...state.models.map((m) => el("option", { value: m.id }, m.id)));
  return goToAddress();
}

// The address names a verb and a model, as in #answer/squad; what it does not name stays as it is.
function goToAddress() {
  const [verb, id] = location.hash.slice(1).split("/");
  at("model").value = (state.models.find((each) => encodeURIComponent(each.id) === id) ??
    state.models.find((each) => each.id === at("model").value)).id;
  chooseModel(verb);
}

function chooseModel(wanted) {
  const model = state.model = state.models.find((each) => each.id === at("model").value);
  const verbs = Object.keys(VIEWS).filter((verb) => model.verbs.includes(verb));
  const blocks = model.num_blocks === 1 ? "One shared block" : `${model.num_blocks} blocks`;
  at("facts").textContent =
    `${blocks}, ${model.num_steps} steps, vectors of ${model.hidden_size}.`;
  at("version").textContent = `Model version ${model.version}`;
  tabs.replaceChildren(...verbs.map((verb) => el("button", {
    type: "button", role: "tab", id: `tab-${verb}`, "aria-controls": "view",
    onclick: () => chooseVerb(verb),
  }, VIEWS[verb].title)));
  chooseVerb([wanted, state.verb, ...verbs].find((verb) => verbs.includes(verb)));
}

function chooseVerb(verb) {
  const view = VIEWS[state.verb = verb];
  cancel();
  history.replaceState(null, "", `#${verb}/${encodeURIComponent(state.model.id)}`);
  for (const tab of tabs.children) {
    const isChosen = tab.id === `tab-${verb}`;
    tab.setAttribute("aria-selected", isChosen);
    tab.tabIndex = isChosen ? 0 : -1;
  }
  at("view").setAttribute("aria-labelledby", `tab-${verb}`);
  at("lead").textContent = view.lead +
    (view.isCut ? ` A text is read up to ${state.model.max_tokens} tokens.` : "");
  const entered = state.entered[verb] ??= { ...blank(view), ...examplesOf(view)[0] };
  at("form").replaceChildren(...fieldsOf(view).map((field) => fieldOf(field, entered)),
    buttons(view), examples(view));
  at("result").classList.remove("waiting");
  at("result").replaceChildren(el("p", { class: "empty" }, "The answer appears here."));
  showCode();
}

// What suits the chosen model: a view may have fields and examples for some models only.
const fieldsOf = (view) => view.fields.filter(({ name }) => view.suitsField?.(name, state.model) ?? true);
const examplesOf = (view) => view.examples.filter((one) => view.suits?.(one, state.model) ?? true);

const blank = (view) => Object.fromEntries(view.fields.map((field) => [field.name, ""]));

function fieldOf(field, entered) {
  const input = el("textarea", { name: field.name, rows: field.rows, spellcheck: "false", dir: "auto",
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
    ...examplesOf(view).map((example) => el("button", { type: "button", onclick: () => {
      state.entered[state.verb] = { ...blank(view), ...example };
      chooseVerb(state.verb);
      at("form").querySelector(".run").focus();
      run();
    } }, shortened(Object.values(example)[0]))));
}

const shortened = (text) => (text.length > 70 ? `${text.slice(0, 70)} …` : text)
  .replaceAll("\n", " / ");

// Leave what was asked before: the server does not compute it then.
function cancel() {
  state.abort.abort(new Error("Something else was asked."));
  state.abort = new AbortController();
  tell("");
  return state.abort.signal;
}

async function run() {
  const [view, entered, signal] = [VIEWS[state.verb], { ...state.entered[state.verb] }, cancel()];
  const missing = fieldsOf(view).find((field) => !field.optional && !entered[field.name].trim());
  const [calls, results] = [view.calls(entered), []];
  // A later question about the same result; its call is shown in place of the first of this verb.
  const askMore = async (verb, body) => {
    const found = await askModel(verb, body, signal);
    showCode(calls.map((call) => (call[0] === verb ? [verb, body] : call)));
    return found;
  };
  at("result").classList.add("waiting");
  tell("Asking the model …");
  try {
    if (missing) throw new Error(`“${missing.label}” is empty.`);
    for (const [verb, body, isOnRequest] of calls)
      if (!isOnRequest) results.push(await askModel(verb, body, signal));
    at("result").replaceChildren(...view.show(results, entered, askMore));
    tell("Answered.");
  } catch (error) {
    if (signal.aborted) return;
    tell("");
    const isOutdated = OUTDATED.includes(error.code);
    if (isOutdated || error.status === 401) await begin();
    showError(isOutdated ? new Error("The server has loaded other models or files. Ask again.") : error);
  }
  at("result").classList.remove("waiting");
}

// The chosen model, or this verb of it, is no longer there; or its files have been replaced.
const OUTDATED = ["LB-955", "LB-956", "another version"];

async function askModel(verb, body, signal) {
  const { version, result } = await ask(verb, { model: state.model.id, ...body }, signal);
  if (version !== state.model.version)
    throw Object.assign(new Error("The model has changed. Ask again."), { code: "another version" });
  return result;
}

function showError(error) {
  at("result").replaceChildren(el("p", { class: "error", role: "alert" },
    error.code ? `${error.message} (${error.code})` : error.message));
}

function showCode(calls = VIEWS[state.verb].calls(state.entered[state.verb])) {
  at("snippets").replaceChildren(...calls.flatMap(([verb, body]) => {
    const full = { model: state.model.id, ...body };
    return [snippet(verb, "Shell", curl(verb, full)), snippet(verb, "Python", python(verb, full))];
  }));
}

function snippet(verb, language, text) {
  const code = el("pre", { tabindex: 0 }, text);
  return el("div", { class: "snippet" },
    el("div", { class: "bar" }, el("span", {}, `${language}: ${verb}`), el("button", {
      type: "button", class: "plain", "aria-label": `Copy ${verb} for ${language}`,
      onclick: () => copy(code) }, "Copy")), code);
}

async function copy(code) {
  try {
    await navigator.clipboard.writeText(code.textContent);
    tell("Copied.");
  } catch {  // refused, or a page over plain HTTP from another machine, which has no clipboard
    getSelection().selectAllChildren(code);
    tell("Selected: press Ctrl + C.");
  }
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
at("form").addEventListener("submit", (event) => { event.preventDefault(); run(); });
at("form").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  if (!event.repeat) run();
});
at("model").addEventListener("change", () => chooseModel());
at("skip").addEventListener("click", (event) => { event.preventDefault(); at("view").focus(); });
addEventListener("hashchange", () => { if (state.model) goToAddress(); });
at("key-row").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(at("key").value);
  begin();
});
begin();
