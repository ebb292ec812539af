// The page's calls to its server, and the same calls as code for curl and Python.

export const MAX_TEXTS = 32;
let key = "";

export function useKey(value) { key = value.trim(); }

export async function models() {
  const reply = await fetch("/v1/models", { headers: headers() });
  if (!reply.ok) throw await problem(reply);
  return (await reply.json()).data;
}

export async function ask(verb, body) {
  const reply = await fetch(`/v1/${verb}`, {
    method: "POST", headers: headers(), body: JSON.stringify(body),
  });
  if (!reply.ok) throw await problem(reply);
  return (await reply.json()).result;
}

// Embed any number of texts, as many per request as the server allows.
export async function embed(model, texts) {
  const vectors = [];
  for (let start = 0; start < texts.length; start += MAX_TEXTS)
    vectors.push(...await ask("embed", { model, texts: texts.slice(start, start + MAX_TEXTS) }));
  return vectors;
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

function headers() {
  const found = { "Content-Type": "application/json" };
  if (key) found.Authorization = `Bearer ${key}`;
  return found;
}

async function problem(reply) {
  // A proxy answers in HTML.
  const told = (await reply.json().catch(() => ({}))).error ?? { message: `The server answered ${reply.status}.` };
  return Object.assign(new Error(told.message), { code: told.code, status: reply.status });
}
