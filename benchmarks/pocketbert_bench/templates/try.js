// Tokens choose the file and are shown; MediaPipe tokenizes the prepared text itself, with the same result.
import { TextClassifier } from "./mediapipe/text_bundle.mjs";

const WASM = {
  wasmLoaderPath: new URL("mediapipe/wasm/text_wasm_internal.js", document.baseURI).href,
  wasmBinaryPath: new URL("mediapipe/wasm/text_wasm_internal.wasm", document.baseURI).href,
};
const SPECIAL_TOKENS = 2;
const MOST_BYTES = 100;
const WORDS = /[!-/:-@[-`{-~]|\p{P}|[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u{20000}-\u{2a6df}\u{2a700}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/u;
const SPACE = /[\t\n\r\p{Z}]/gu;
const CONTROL = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\ufffd]/gu;
const element = (id) => document.getElementById(id);
const show = (id, text) => { element(id).textContent = text; };
const classifiers = new Map();
let settings, vocabulary;

// As pocketbert_export.clients.mediapipe_files.prepare. toLowerCase maps a Greek capital sigma by the letters around it.
function prepare(text) {
  const lower = Array.from(text, (each) => each.toLowerCase()).join("");
  return lower.normalize("NFD").replace(/\p{Mn}/gu, "").replace(SPACE, " ").replace(CONTROL, "");
}

function wordPieces(word) {
  if (new TextEncoder().encode(word).length > MOST_BYTES) return ["[UNK]"];
  const characters = Array.from(word), pieces = [];
  for (let start = 0; start < characters.length;) {
    let end = characters.length, piece = null;
    for (; end > start; end--) {
      const candidate = (start ? "##" : "") + characters.slice(start, end).join("");
      if (vocabulary.has(candidate)) { piece = candidate; break; }
    }
    if (piece === null) return ["[UNK]"];
    pieces.push(piece);
    start = end;
  }
  return pieces;
}

function tokenize(text) {
  const separated = Array.from(text, (each) => (WORDS.test(each) ? ` ${each} ` : each)).join("");
  return separated.split(" ").filter(Boolean).flatMap(wordPieces);
}

function classifier(length) {
  if (!classifiers.has(length)) {
    const modelAssetPath = new URL(`length_${length}.tflite`, document.baseURI).href;
    const made = TextClassifier.createFromOptions(WASM, { baseOptions: { modelAssetPath } });
    // The first call initializes the runtime.
    classifiers.set(length, made.then((task) => { task.classify("a"); return task; }));
  }
  return classifiers.get(length);
}

async function answer() {
  const text = prepare(element("text").value), tokens = tokenize(text);
  const wanted = tokens.length + SPECIAL_TOKENS, longest = settings.lengths.at(-1);
  const length = settings.lengths.find((each) => each >= wanted) ?? longest;
  const task = await classifier(length);
  // A later text has been typed meanwhile.
  if (text !== prepare(element("text").value)) return;
  const begin = performance.now();
  const categories = task.classify(text).classifications[0].categories;
  const milliseconds = performance.now() - begin;
  const best = categories.reduce((first, second) => (second.score > first.score ? second : first));
  show("label", best.categoryName);
  show("score", best.score.toFixed(4));
  show("scores", categories.map((each) => `${each.categoryName} ${each.score.toFixed(4)}`).join(", "));
  show("tokens", tokens.slice(0, longest - SPECIAL_TOKENS).join(" "));
  show("length", `${length} tokens; the text has ${wanted}${wanted > longest ? ", truncated" : ""}`);
  show("time", `${milliseconds.toFixed(1)} ms`);
}

async function answerOrExplain() {
  try {
    show("error", "");
    await answer();
  } catch (error) {
    show("error", String(error));
  }
}

try {
  settings = await (await fetch("settings.json")).json();
  vocabulary = new Set((await (await fetch("vocab.txt")).text()).split(/\r?\n/));
  await classifier(settings.lengths[0]);
  element("text").disabled = false;
  element("text").placeholder = "Type a text";
  element("text").addEventListener("input", answerOrExplain);
} catch (error) {
  show("error", String(error));
}
