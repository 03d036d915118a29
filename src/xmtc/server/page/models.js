// The served models, the selection of one or two, and a description of each.

import { byId, counted, make, percent, plural, words } from "./dom.js";

let models = [];
export let limits = { characters: 1_000_000, k: 1000 };

export const modelNamed = (name) => models.find((model) => model.name === name) ?? null;

/** The names of the selected models: one, or two to compare. */
export const chosen = () => [byId("first").value, byId("second").value].filter(Boolean);

/** Offer the served models; `changed` is called when the selection changes. */
export function offer(served, changed) {
  models = served.models;
  limits = { ...limits, ...served.limits };
  const [first, second] = [byId("first"), byId("second")];
  const options = () => models.map((model) => make("option", { value: model.name }, model.name));
  first.replaceChildren(...options());
  second.replaceChildren(make("option", { value: "" }, "none"), ...options());
  byId("only").textContent = models.length === 1 ? models[0].name : "";
  for (const part of [first, second, ...document.querySelectorAll("#choice label")]) part.hidden = models.length < 2;
  first.onchange = second.onchange = () => {
    shape();
    changed();
  };
  shape();
}

/** Select models by name, for a text restored from the history; models no longer served are ignored. */
export function choose(names) {
  const [first, second] = [byId("first"), byId("second")];
  if (modelNamed(names[0])) first.value = names[0];
  second.value = modelNamed(names[1]) ? names[1] : "";
  shape();
}

function shape() {
  const [first, second] = [byId("first"), byId("second")];
  if (second.value === first.value) second.value = "";
  for (const option of second.options) option.disabled = option.value === first.value;
  const fits = modelNamed(first.value)?.threshold ?? false;
  byId("fitting").hidden = !fits;
  const auto = byId("fitting").querySelector("input");
  if (!fits && auto.checked) document.querySelector("#many input[value='10']").checked = true;
}

/** The requested number of labels: a number, or "auto" if the model has a tuned threshold. */
export function wanted(name) {
  const many = document.querySelector("#many input:checked").value;
  return many === "auto" && !modelNamed(name)?.threshold ? "10" : many;
}

/** The model that feedback is saved for: the first one that accepts feedback. */
export const taker = (names) => names.find((name) => modelNamed(name)?.feedback) ?? null;

/** A line about a model that expands to more details. */
export function about(model) {
  const training = model.training ?? {};
  const facts = [model.kind, plural(model.labels, "label")];
  const rows = [["Model", model.kind], ["Labels", counted(model.labels)]];
  if (training.documents !== undefined) {
    facts.push(plural(training.documents, "document"));
    rows.push(["Trained on", plural(training.documents, "document")]);
  }
  if (training.seconds !== undefined) rows.push(["Training time", duration(training.seconds)]);
  if (model.history?.length) rows.push(["Updates", counted(model.history.length)]);
  rows.push(["Scores", model.calibrated ? "calibrated probabilities" : "not calibrated"]);
  const measured = Object.entries(model.metrics ?? {}).filter(([, value]) => typeof value === "number");
  for (const [name, value] of measured) rows.push([name, value >= 0 && value <= 1 ? percent(value) : String(value)]);
  if (model.version) rows.push(["Version", model.version]);
  const pairs = rows.map(([name, value]) => make("div", {}, make("dt", {}, name), words("dd", String(value))));
  return make("details", { class: "about small" }, make("summary", {}, facts.join(" · ")), make("dl", {}, ...pairs));
}

const duration = (seconds) => (seconds < 120 ? `${seconds.toFixed(1)} s` : `${counted(Math.round(seconds / 60))} min`);
