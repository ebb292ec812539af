// litebert's tokenizer for the page: the same ids as `Tokenizer.encode_ids` in Python.
// Preprocessing as in google-research/albert tokenization.py, then SentencePiece: its character map
// (normalizer.cc) and its unigram search (unigram_model.cc, EncodeOptimized), in 32-bit floats.

const SPACE = "▁";
const UNKNOWN = 2, CONTROL = 3, USER_DEFINED = 4;
const UNKNOWN_PENALTY = 10;
const utf8 = new TextEncoder();
const fromUtf8 = new TextDecoder();

export class Tokenizer {
  constructor(table) {
    this.pieces = table.pieces;
    this.special = table.special;
    this.kinds = new Map(Object.entries(table.kinds).map(([id, kind]) => [Number(id), kind]));
    this.scores = Float32Array.from(table.scores);
    this.table = table;
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]));
    this.spaces = new RegExp(`[${table.spaces}]+`, "gu");
    this.marks = new RegExp(`[${table.marks}]`, "gu");
    this.digit = new RegExp(`^[${table.digits}]$`, "u");
    const names = [...new Set(Object.values(table.special))].map((id) => this.pieces[id]);
    const escaped = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    this.specialPattern = new RegExp(`(${escaped.join("|")})`);
    this.folded = new Map();
    this.charsmap = table.charsmap ? new CharacterMap(table.charsmap) : null;
    this.root = new Map();
    this.userDefined = new Map();
    const normal = [];
    this.pieces.forEach((piece, id) => {
      const kind = this.kinds.get(id) ?? 1;
      if (kind === UNKNOWN || kind === CONTROL) return;
      insert(this.root, piece, id);
      if (kind === USER_DEFINED) insert(this.userDefined, piece, id);
      else normal.push(this.scores[id]);
    });
    this.least = normal.reduce((a, b) => Math.min(a, b), Infinity);
    this.best = normal.reduce((a, b) => Math.max(a, b), -Infinity);
  }

  // Ids without [CLS] and [SEP]; with `special`, names such as [MASK] in the text are special ids.
  encode(text, special = false) {
    const whole = text.isWellFormed?.() === false ? text.toWellFormed() : wellFormed(text);
    if (!special) return this.plain(whole);
    return whole
      .split(this.specialPattern)
      .flatMap((part, index) => (index % 2 ? [this.ids.get(part)] : this.plain(part)));
  }

  // Ids of a text with blanks, as in training: what follows [MASK] without a space begins no word.
  encodeBlanks(text) {
    const after = Array.from(text.matchAll(/\[MASK\](.?)/gsu), ([, next]) => next);
    let continues = false;
    return this.encode(text, true).flatMap((id) => {
      const piece = this.pieces[id];
      const follows = continues && piece.startsWith(SPACE);
      continues = id === this.special.mask && !/\s/u.test(after.shift());
      return follows ? (piece === SPACE ? [] : [this.ids.get(piece.slice(1)) ?? id]) : [id];
    });
  }

  decode(ids) {
    const hidden = new Set(Object.values(this.special).map((id) => this.pieces[id]));
    const shown = ids.map((id) => {
      if (id === this.special.unk) return " ⁇ ";
      return hidden.has(this.pieces[id]) ? "" : this.pieces[id];
    });
    return shown.join("").replaceAll(SPACE, " ").trim();
  }

  plain(text) {
    return this.split(this.preprocess(text)).flatMap((piece) => this.parts(piece));
  }

  preprocess(text) {
    let found = text.replace(this.spaces, " ").replace(/^ | $/g, "");
    if (!this.table.keep_accents) {
      found = found.replace(/[^\x00-\x7f]+/g, (run) => Array.from(run, (c) => this.fold(c)).join(""));
    }
    return this.table.lowercase ? found.toLowerCase() : found;
  }

  fold(character) {
    let found = this.folded.get(character);
    if (found === undefined) {
      found = character.normalize("NFKD").replace(this.marks, "");
      this.folded.set(character, found);
    }
    return found;
  }

  // The ids of one piece: 2010, becomes 2010 and a comma, as in the official code.
  parts(piece) {
    const last = Array.from(piece.slice(-4)).slice(-2);
    if (last.length < 2 || last[1] !== "," || !this.digit.test(last[0])) return [this.id(piece)];
    let [first = "", ...rest] = this.split(piece.slice(0, -1).replaceAll(SPACE, " "));
    if (!piece.startsWith(SPACE) && first.startsWith(SPACE)) first = first.slice(1);
    return [first, ...rest, ","].filter((part) => part).map((part) => this.id(part));
  }

  id(piece) {
    const id = this.ids.get(piece);
    const kind = this.kinds.get(id) ?? 1;
    return id === undefined || kind === UNKNOWN || kind === CONTROL ? this.special.unk : id;
  }

  // The pieces of a text after preprocessing; a run of unknown characters is one piece.
  split(text) {
    const characters = Array.from(this.normalize(text));
    const size = characters.length;
    const score = new Float32Array(size + 1);
    const start = new Int32Array(size + 1).fill(-1);
    const known = new Uint8Array(size + 1);
    const unknown = Math.fround(this.least - UNKNOWN_PENALTY);
    for (let begin = 0; begin < size; begin++) {
      let node = this.root, hasSingle = false, bytes = 0;
      const here = score[begin];
      for (let end = begin; end < size; end++) {
        node = node.get(characters[end]);
        if (node === undefined) break;
        bytes += byteLength(characters[end]);
        if (node.id === undefined) continue;
        const isOwn = this.kinds.get(node.id) === USER_DEFINED;
        const value = isOwn ? bytes * this.best - 0.1 : this.scores[node.id];
        const candidate = Math.fround(Math.fround(value) + here);
        if (start[end + 1] === -1 || candidate > score[end + 1]) {
          score[end + 1] = candidate;
          start[end + 1] = begin;
          known[end + 1] = 1;
        }
        if (end === begin) hasSingle = true;
      }
      if (!hasSingle) {
        const candidate = Math.fround(unknown + here);
        if (start[begin + 1] === -1 || candidate > score[begin + 1]) {
          score[begin + 1] = candidate;
          start[begin + 1] = begin;
          known[begin + 1] = 0;
        }
      }
    }
    const found = [];
    let followsUnknown = false;
    for (let end = size; end > 0; end = start[end]) {
      const piece = characters.slice(start[end], end).join("");
      if (!known[end] && followsUnknown) found[found.length - 1] = piece + found[found.length - 1];
      else found.push(piece);
      followsUnknown = !known[end];
    }
    return found.reverse();
  }

  // SentencePiece's own normalizer: character map, one ▁ before the text and between words.
  normalize(text) {
    let found = SPACE, isAfterSpace = true;
    for (let part of this.mapped(text)) {
      while (isAfterSpace && part.startsWith(" ")) part = part.slice(1);
      if (part) {
        found += part.replaceAll(" ", SPACE);
        isAfterSpace = part.endsWith(" ");
      }
    }
    while (found.endsWith(SPACE)) found = found.slice(0, -1);
    return found;
  }

  *mapped(text) {
    const characters = Array.from(text);
    const encoded = this.charsmap ? characters.map((c) => utf8.encode(c)) : null;
    for (let begin = 0; begin < characters.length; ) {
      let length = longest(this.userDefined, characters, begin);
      if (length) {
        yield characters.slice(begin, begin + length).join("");
      } else {
        const match = this.charsmap?.longest(encoded, begin);
        length = match?.length ?? 1;
        yield match?.text ?? characters[begin];
      }
      begin += length;
    }
  }
}

// A double-array trie from UTF-8 to replacements, in the layout of darts-clone.
class CharacterMap {
  constructor(base64) {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const size = new DataView(bytes.buffer).getUint32(0, true);
    this.units = new Uint32Array(bytes.buffer.slice(4, 4 + size));
    this.replacements = bytes.subarray(4 + size);
  }

  // The longest match that begins at a character: its number of characters, and what replaces it.
  longest(characters, begin) {
    let place = offset(this.units[0]), found = null;
    for (let at = begin; at < characters.length; at++) {
      for (const [index, byte] of characters[at].entries()) {
        place ^= byte;
        const unit = this.units[place];
        if (unit === undefined || ((unit & 0x800000ff) >>> 0) !== byte) return found;
        place ^= offset(unit);
        if ((unit >>> 8) & 1 && index === characters[at].length - 1) {
          const start = this.units[place] & 0x7fffffff;
          const end = this.replacements.indexOf(0, start);
          const text = fromUtf8.decode(this.replacements.subarray(start, end));
          found = { length: at - begin + 1, text };
        }
      }
    }
    return found;
  }
}

function offset(unit) {
  return (unit >>> 10) << ((unit & 0x200) >>> 6);
}

function insert(root, piece, id) {
  let node = root;
  for (const character of piece) {
    if (!node.has(character)) node.set(character, new Map());
    node = node.get(character);
  }
  node.id = id;
}

function longest(root, characters, begin) {
  let node = root, length = 0;
  for (let end = begin; end < characters.length; end++) {
    node = node.get(characters[end]);
    if (node === undefined) break;
    if (node.id !== undefined) length = end - begin + 1;
  }
  return length;
}

function byteLength(character) {
  const code = character.codePointAt(0);
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

function wellFormed(text) {
  return text.replace(/[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g, "\ufffd");
}
