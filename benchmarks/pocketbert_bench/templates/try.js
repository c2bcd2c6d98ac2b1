const element = (id) => document.getElementById(id);
const show = (id, text) => { element(id).textContent = text; };
const inputs = ["text", "pair"].map(element).filter(Boolean);
const digits = (value) => value.toFixed(4);
let bundle, latest = 0;

function summary({ label, labels, score, similarity, embedding }) {
  if (label !== undefined) return label ?? "none: the highest probability is below the threshold";
  if (labels) return labels.join(", ") || "none";
  return embedding ? `a vector of ${embedding.length} numbers` : digits(score ?? similarity);
}

async function answer() {
  const call = ++latest, begin = performance.now();
  const { answer, results } = await bundle.predict(...inputs.map(({ value }) => value));
  // A later text has been typed meanwhile.
  if (call !== latest) return;
  const milliseconds = performance.now() - begin;
  const answers = bundle.task.tasks ? Object.entries(answer) : [["", answer]];
  const named = (head, text) => (head ? `${head}: ${text}` : text);
  show("answer", answers.map(([head, part]) => named(head, summary(part))).join("; "));
  show("probabilities", answers.flatMap(([head, { probabilities = {} }]) =>
    Object.entries(probabilities).map(([label, value]) => named(head, `${label} ${digits(value)}`))).join(", "));
  show("tokens", results.map(({ row }) => row.tokens.join(" ")).join(" | "));
  show("length", results.map(({ row, length }) =>
    `${length} tokens; the text has ${row.count}${row.count > row.ids.length ? ", truncated" : ""}`).join(" | "));
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
  bundle = await import("./bundle.js");
  // The first run prepares the network.
  await bundle.predict(...inputs.map(() => ""));
  for (const input of inputs) {
    input.disabled = false;
    input.placeholder = "Type a text";
    input.addEventListener("input", answerOrExplain);
  }
} catch (error) {
  show("error", String(error));
}
