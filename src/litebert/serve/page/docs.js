// The documentation of the HTTP interface, from the server's own OpenAPI document.
import { curl } from "/page/api.js";
import { el } from "/page/charts.js";

let schema;

const resolve = (part) => (part?.$ref
  ? part.$ref.slice(2).split("/").reduce((node, key) => node[key], schema) : part);

// A type in words, with its limits.
function words(part) {
  const found = resolve(part);
  if (found.anyOf) return found.anyOf.map(words).filter((each) => each !== "null").join(", or ");
  if (found.enum) return found.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (found.const !== undefined) return JSON.stringify(found.const);
  if (found.type === "array") {
    const size = found.maxItems ? ` of ${found.minItems ?? 0} to ${found.maxItems}` : "";
    return `list${size}: ${words(found.items ?? {})}`;
  }
  const limits = [
    found.minimum !== undefined && `${found.minimum} to ${found.maximum}`,
    found.maxLength && `at most ${found.maxLength} characters`,
  ].filter(Boolean);
  return [found.title && found.properties ? found.title : found.type, ...limits].join(", ");
}

function fields(part) {
  const found = resolve(part);
  const rows = Object.entries(found.properties ?? {}).map(([name, field]) => el("tr", {},
    el("th", { scope: "row" }, name), el("td", {}, words(field)),
    el("td", {}, found.required?.includes(name) ? "required"
      : field.default === undefined || field.default === null ? "none"
        : JSON.stringify(field.default))));
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": found.title },
    el("table", { class: "fields" }, el("thead", {}, el("tr", {},
      ...["field", "type", "default"].map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows)));
}

function example(part) {
  const found = resolve(part);
  return Object.fromEntries(Object.entries(found.properties ?? {})
    .map(([name, field]) => [name, field.examples?.[0]])
    .concat(found.required?.includes("model") ? [["model", "NAME"]] : [])
    .filter(([, value]) => value !== undefined));
}

function route(path, method, operation) {
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
  return el("section", { class: "route" },
    el("h2", {}, el("b", {}, method.toUpperCase()), path),
    el("p", {}, operation.description ?? operation.summary),
    ...(body ? [fields(body), el("pre", { tabindex: 0 }, curl(path.slice(4), example(body)))] : []),
    ...(body && answer ? [el("details", {}, el("summary", {}, "Answer"), fields(answer))] : []));
}

const about = document.getElementById("about");
try {
  const reply = await fetch("/openapi.json");
  if (!reply.ok) throw new Error(`the server answered ${reply.status}`);
  schema = await reply.json();
  about.textContent = schema.info.description.replaceAll("`", "");
  document.getElementById("routes").replaceChildren(...Object.entries(schema.paths)
    .flatMap(([path, methods]) => Object.entries(methods)
      .map(([method, operation]) => route(path, method, operation))));
} catch (error) {
  about.textContent = `The list of routes could not be loaded: ${error.message}.`;
}
