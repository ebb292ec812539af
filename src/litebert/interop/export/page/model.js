// The model in a worker: fetch and unpack the files, encode, run, read the outputs.

import * as ort from "./onnxruntime.js";
import { Tokenizer } from "./tokenizer.js";

let settings, tokenizer, session, words, firstAlike;

async function load() {
  settings = await (await get("settings.json")).json();
  const total = Object.values(settings.sizes).reduce((a, b) => a + b, 0);
  let done = 0;
  const unpacked = async (name) => {
    const answer = await get(name);
    const counted = new TransformStream({
      transform(chunk, out) {
        done += chunk.length;
        postMessage({ progress: done / total });
        out.enqueue(chunk);
      },
    });
    const stream = answer.body.pipeThrough(counted).pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  };
  const [model, binary, table] = await Promise.all(
    ["model.bin", "runtime.bin", "tokenizer.bin"].map(unpacked),
  );
  ort.env.wasm.numThreads = 1; // more threads need headers that a plain static server does not send
  ort.env.wasm.wasmBinary = binary;
  tokenizer = new Tokenizer(JSON.parse(new TextDecoder().decode(table)));
  session = await ort.InferenceSession.create(new Uint8Array(model), {
    executionProviders: ["wasm"],
  });
  return { settings, bytes: total };
}

async function get(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return answer;
}

// The first `first` ids belong to the first text, the others to the second.
async function run(ids, output, first = ids.length) {
  const shape = [1, ids.length];
  const tensor = (values) => new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
  const inputs = {
    input_ids: tensor(ids),
    attention_mask: tensor(ids.map(() => 1)),
    token_type_ids: tensor(ids.map((_, place) => Number(place >= first))),
  };
  return (await session.run(inputs, [output]))[output];
}

function framed(ids, longest = settings.positions) {
  const { cls, sep } = tokenizer.special;
  return [cls, ...ids.slice(0, Math.min(longest, settings.positions) - 2), sep];
}

// Fill every [MASK] with the likeliest combinations of words, like `model.fill` in Python.
async function fill({ text, top = 5 }) {
  const { mask } = tokenizer.special;
  let ids = tokenizer.encodeBlanks(text);
  const blanks = ids.flatMap((id, place) => (id === mask ? [place] : []));
  if (!blanks.length) throw new Error("Put [MASK] where a word is missing.");
  const room = settings.positions - 2;
  const [first, last] = [blanks[0], blanks[blanks.length - 1]];
  if (last - first >= room) throw new Error("The blanks are too far apart.");
  const middle = Math.floor((first + last + 1) / 2) - Math.floor(room / 2);
  const begin = Math.min(Math.max(0, middle), Math.max(0, ids.length - room));
  ids = framed(ids.slice(begin, begin + room));
  const logits = await run(ids, "prediction_logits");
  const size = logits.dims[2];
  // The text of each piece; special pieces and a lone "▁" are not words.
  const special = new Set(Object.values(tokenizer.special));
  words ??= tokenizer.pieces.map((_, id) => (special.has(id) ? "" : tokenizer.decode([id])));
  let beams = [{ words: [], probability: 1 }];
  for (const [place, id] of ids.entries()) {
    if (id !== mask) continue;
    const row = logits.data.slice(place * size, (place + 1) * size);
    words.forEach((word, id) => word || (row[id] = -Infinity));
    const best = highest(byWord(softmax(row)), top);
    beams = beams
      .flatMap((beam) =>
        best.map(([piece, p]) => ({
          words: [...beam.words, words[piece]],
          probability: beam.probability * p,
        })),
      )
      .sort((a, b) => b.probability - a.probability)
      .slice(0, top);
  }
  const parts = text.split("[MASK]");
  return beams.map(({ words: chosen, probability }) => ({
    words: chosen,
    probability,
    text: parts.reduce((so_far, part, index) => so_far + chosen[index - 1] + part),
  }));
}

// Add up pieces with the same text, at the first of them: one begins a word, one continues a word.
function byWord(probabilities) {
  firstAlike ??= new Map(words.map((word, id) => [word, id]).reverse());
  const sums = new Float64Array(probabilities.length);
  probabilities.forEach((value, id) => (sums[firstAlike.get(words[id])] += value));
  return sums;
}

// One text or a pair; to fit, the longer one loses tokens at its end, like `frame_ids` in Python.
async function classify({ text, second = "" }) {
  const { cls, sep } = tokenizer.special;
  const [a, b] = [tokenizer.encode(text), tokenizer.encode(second)];
  const end = b.length ? [sep] : [];
  while (a.length + b.length + end.length + 2 > settings.positions) (a.length > b.length ? a : b).pop();
  const logits = Array.from((await run([cls, ...a, sep, ...b, ...end], "logits", a.length + 2)).data);
  const { labels, activation } = settings;
  if (activation === "none") return [{ label: labels[0], value: logits[0], isScore: true }];
  const values =
    activation === "sigmoid" ? logits.map((x) => 1 / (1 + Math.exp(-x))) : Array.from(softmax(logits));
  return labels.map((label, index) => ({ label, value: values[index] }));
}

// One vector of length 1.
async function embed({ text }) {
  const ids = framed(tokenizer.encode(settings.prompt + text), settings.max_length ?? undefined);
  const states = await run(ids, "last_hidden_state");
  const [, rows, size] = states.dims;
  const vector = new Float32Array(size);
  const count = settings.pooling === "cls" ? 1 : rows;
  if (settings.pooling === "max") vector.fill(-Infinity);
  for (let row = 0; row < count; row++) {
    for (let column = 0; column < size; column++) {
      const value = states.data[row * size + column];
      if (settings.pooling === "max") vector[column] = Math.max(vector[column], value);
      else vector[column] += value / count;
    }
  }
  const norm = Math.hypot(...vector) || 1;
  return vector.map((value) => value / norm);
}

const vectors = new Map();

async function search({ query, texts }) {
  for (const [index, text] of texts.entries()) {
    if (!vectors.has(text)) vectors.set(text, await embed({ text }));
    if (index % 20 === 19) postMessage({ searched: (index + 1) / texts.length });
  }
  const wanted = await embed({ text: query });
  const cosine = (vector) => vector.reduce((sum, value, index) => sum + value * wanted[index], 0);
  return texts
    .map((text) => ({ text, score: cosine(vectors.get(text)) }))
    .sort((a, b) => b.score - a.score);
}

function softmax(logits) {
  const largest = logits.reduce((a, b) => Math.max(a, b), -Infinity);
  const values = logits.map((x) => Math.exp(x - largest));
  const sum = values.reduce((a, b) => a + b, 0);
  return values.map((x) => x / sum);
}

function highest(values, top) {
  return Array.from(values, (value, index) => [index, value])
    .sort((a, b) => b[1] - a[1])
    .slice(0, top);
}

const verbs = { fill, classify, embed, search, encode: ({ text }) => tokenizer.encode(text) };
const loading = load();

async function answer(verb, given) {
  const loaded = await loading;
  if (verb === "load") return loaded;
  if (![...settings.verbs, "embed", "encode"].includes(verb)) throw new Error(`There is no verb ${verb} here.`);
  for (const name of verb === "search" ? ["query", "texts"] : ["text"])
    if (given[name] === undefined) throw new Error(`${verb} needs ${name}.`);
  return verbs[verb](given);
}

onmessage = ({ data: { id, verb, given } }) => answer(verb, given).then(
  (found) => postMessage({ id, answer: found }),
  (error) => postMessage({ id, error: error.message }),
);
