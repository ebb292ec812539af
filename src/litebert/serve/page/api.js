// The page's calls to its server, and the same calls as code for curl and Python.

let key = "";

export function useKey(value) { key = value.trim(); }

export async function models() { return (await send("/v1/models", {})).data; }

// What the page shows of each verb.
export async function forms() { return send("/page/verbs.json", {}); }

// The model that answers, the version of its files, and its `result`.
export function ask(verb, body, signal) {
  return send(`/v1/${verb}`, { method: "POST", body: JSON.stringify(body), signal });
}

async function send(path, options) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const reply = await fetch(path, { headers, ...options }).catch(() => {
    options.signal?.throwIfAborted();
    throw new Error("The server does not answer. Is litebert serve still running?");
  });
  if (reply.ok) return reply.json();
  // A proxy answers in HTML.
  const told = (await reply.json().catch(() => ({}))).error ?? { message: `The server answered ${reply.status}.` };
  throw Object.assign(new Error(told.message), { code: told.code, status: reply.status });
}

export function curl(verb, body) {
  const json = JSON.stringify(body, null, 1).replace(/\n\s*/g, " ").replaceAll("'", "'\\''");
  const auth = key ? ` \\\n  -H 'Authorization: Bearer YOUR_KEY'` : "";
  return `curl -s ${location.origin}/v1/${verb} \\\n  -H 'Content-Type: application/json'${auth} \\\n` +
    `  -d '${json}'`;
}

export function python(verb, body) {
  const auth = key ? `, "Authorization": "Bearer YOUR_KEY"` : "";
  return `import json
from urllib.request import Request, urlopen

body = ${literal(body)}
headers = {"Content-Type": "application/json"${auth}}
request = Request("${location.origin}/v1/${verb}", json.dumps(body).encode(), headers)
print(json.load(urlopen(request))["result"])`;
}

// Strings, numbers, lists and objects as Python writes them.
function literal(value) {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (value && typeof value === "object") return `{${Object.entries(value)
    .map(([name, each]) => `${JSON.stringify(name)}: ${literal(each)}`).join(", ")}}`;
  return JSON.stringify(value);
}
