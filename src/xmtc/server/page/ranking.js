// The labels of a text: one list per model and one for labels added manually. Each row has three buttons: label, accept
// and reject. Only those of the current row are in the tab order; arrow keys move between rows.

import { copyButtons } from "./copying.js";
import { others, verdict } from "./decisions.js";
import * as details from "./details.js";
import { byId, icon, make, score, words } from "./dom.js";
import { about, modelNamed } from "./models.js";

const BUTTONS = ["label", "accept", "reject"];

let columns = []; // the rows of each ranking
let added = []; // the rows of labels that are in no ranking
let current = null;
let column = 0; // the ranking that was left when moving to the added labels
let handlers = { why: () => {}, decide: () => {}, moved: () => {}, gone: () => {} };

export const listen = (given) => {
  handlers = given;
};
export const currentRow = () => current;
export const rowsOf = () => [...columns.flat(), ...added];

/** Draw all rankings again; the current row stays on its label if that still exists. */
export function draw(entry) {
  const before = current;
  const both = entry.results.length > 1 ? common(entry) : new Map();
  columns = entry.results.map((result, side) => ranked(entry, result, side, both));
  const two = columns.length > 1;
  byId("rankings").replaceChildren(...columns.map((rows, side) => section(entry.results[side], rows, two)));
  byId("rankings").classList.toggle("two", two);
  added = [];
  current = null;
  drawAdded(entry);
  const again = rowsOf().find((row) => before && row.key === before.key && row.side === before.side);
  setCurrent(again ?? columns[0][0] ?? added[0] ?? null);
}

export function clear() {
  columns = [];
  added = [];
  current = null;
  byId("rankings").replaceChildren();
}

/** Keys that are in both rankings, with their positions. */
function common(entry) {
  const [left, right] = entry.results.map((result) => result.labels.map((label) => label.key));
  const shared = left.filter((key) => right.includes(key));
  return new Map(shared.map((key) => [key, [left.indexOf(key), right.indexOf(key)]]));
}

function ranked(entry, result, side, both) {
  const calibrated = modelNamed(result.model)?.calibrated ?? false;
  const scores = result.labels.map((label) => label.score);
  const [low, high] = calibrated ? [0, 1] : [Math.min(0, ...scores), Math.max(...scores)];
  return result.labels.map((label) => {
    const places = both.get(label.key);
    const row = rowOf(entry, label, result.model, side, {
      figure: score(label.score, calibrated),
      length: high > low ? (label.score - low) / (high - low) : 0,
      note: places ? `other model: ${ordinal(places[1 - side] + 1)}` : null,
    });
    row.item.classList.toggle("both", Boolean(places));
    return row;
  });
}

function ordinal(place) {
  const ending = place % 100 > 10 && place % 100 < 14 ? "th" : ({ 1: "st", 2: "nd", 3: "rd" }[place % 10] ?? "th");
  return `${place}${ending}`;
}

/** One row and its elements; `shown` contains the score, the length of the bar and a note, if any. */
function rowOf(entry, label, model, side, shown = {}) {
  const row = { key: label.key, name: label.name, model, side };
  const bar = make("i");
  bar.style.width = `${100 * (shown.length ?? 0)}%`;
  const opens = { "aria-expanded": "false", "aria-controls": "why", title: label.key };
  row.label = make("button", { type: "button", class: "label", ...opens },
    words("span", label.name, { class: "name" }),
    make("span", { class: "figure" }, shown.figure ?? ""),
    shown.figure ? make("span", { class: "bar", "aria-hidden": "true" }, bar) : null,
    shown.note ? make("span", { class: "also" }, shown.note) : null,
    details.line(label));
  for (const [kind, given, verb] of [["accept", "accepted", "Accept"], ["reject", "rejected", "Reject"]]) {
    const said = { "aria-label": `${verb} ${label.name}`, title: `${verb} (${kind[0]})` };
    row[kind] = make("button", { type: "button", class: kind, ...said }, icon(kind));
    row[kind].addEventListener("click", () => handlers.decide(row, given));
  }
  row.label.addEventListener("click", () => handlers.why(row));
  const line = make("div", { class: "line" }, ...BUTTONS.map((kind) => row[kind]));
  row.notes = details.notes(label);
  row.item = make("li", { class: "row" }, line, row.notes);
  row.item.addEventListener("focusin", (event) => {
    if (BUTTONS.some((kind) => row[kind] === event.target)) setCurrent(row);
  });
  if (shown.note) {
    for (const [event, on] of [["mouseenter", true], ["mouseleave", false], ["focusin", true], ["focusout", false]]) {
      row.item.addEventListener(event, () => twin(row)?.item.classList.toggle("twin", on));
    }
  }
  mark(entry, row);
  tabbable(row, false);
  return row;
}

const twin = (row) => columns[1 - row.side]?.find((other) => other.key === row.key) ?? null;

const noKnownWord = (rows) =>
  `No known word in this text${rows.length ? ": the labels do not depend on it" : ", so it gets no label"}.`;

function section(result, rows, named) {
  const model = modelNamed(result.model);
  const list = make("ol", { "aria-label": "Labels, best first" }, ...rows.map((row) => row.item));
  return make("section", { class: "ranking", "aria-label": `Labels of ${result.model}` },
    named ? words("h3", result.model) : null,
    result.known_words === false ? make("p", { class: "note" }, noKnownWord(rows)) : null,
    rows.length ? list : null,
    rows.length || result.known_words === false ? null : make("p", { class: "faint" }, "No label fits this text."),
    model && !model.calibrated && rows.length
      ? make("p", { class: "faint small" }, "Scores are not probabilities. Bars are relative to the best label.") : null,
    make("div", { class: "under" }, copyButtons(result), model ? about(model) : null));
}

/** Update the marks after a decision; new rows are created only for added labels. */
export function refresh(entry) {
  for (const row of rowsOf()) mark(entry, row);
  drawAdded(entry);
}

function mark(entry, row) {
  const given = verdict(entry, row.key);
  row.item.classList.toggle("accepted", given === "accepted");
  row.item.classList.toggle("rejected", given === "rejected");
  row.accept.setAttribute("aria-pressed", String(given === "accepted"));
  row.reject.setAttribute("aria-pressed", String(given === "rejected"));
}

/** Rows of labels that are in no ranking: remove old ones, append new ones, keep the others in place. */
function drawAdded(entry) {
  const labels = others(entry);
  const keys = new Set(labels.map((label) => label.key));
  const known = new Map(added.map((row) => [row.key, row]));
  const gone = added.filter((row) => !keys.has(row.key));
  for (const row of gone) {
    handlers.gone(row);
    row.item.remove();
  }
  added = labels.map((label) => known.get(label.key) ?? rowOf(entry, label, entry.results[0].model, columns.length));
  const list = document.querySelector(".added ol") ?? make("ol");
  list.append(...added.filter((row) => !known.has(row.key)).map((row) => row.item));
  if (!added.length) document.querySelector(".added")?.remove();
  else if (!list.isConnected) {
    byId("rankings").append(make("section", { class: "added", "aria-label": "Added" }, make("h3", {}, "Added"), list));
  }
  if (gone.includes(current)) go(added.at(-1) ?? columns[column]?.at(-1) ?? null);
}

function tabbable(row, yes) {
  const summary = row.notes?.firstChild;
  for (const button of [...BUTTONS.map((kind) => row[kind]), ...(summary ? [summary] : [])]) button.tabIndex = yes ? 0 : -1;
}

function setCurrent(row) {
  if (current && current !== row) {
    current.item.classList.remove("current");
    tabbable(current, false);
  }
  const moved = current !== row;
  current = row;
  if (!row) return;
  if (row.side < columns.length) column = row.side;
  row.item.classList.add("current");
  tabbable(row, true);
  if (moved) handlers.moved(row);
}

/** Focus a row: the label, or another kind of button. */
export function go(row = current, kind = "label") {
  if (!row) return;
  setCurrent(row);
  row[kind].focus({ preventScroll: true });
  row.item.firstChild.scrollIntoView({ block: "nearest" });
}

export const find = (key) => rowsOf().find((row) => row.key === key) ?? null;

const focusedKind = () => BUTTONS.find((kind) => current?.[kind] === document.activeElement) ?? "label";

/** Move up or down by one row; the added labels follow each ranking. */
export function move(step) {
  const inList = document.activeElement?.closest(".row") !== null;
  if (!inList) return go();
  const rows = [...(columns[column] ?? []), ...added];
  const at = rows.indexOf(current) + step;
  if (at >= 0 && at < rows.length) go(rows[at], focusedKind());
}

/** Move to the other ranking: to the same label, or to the same position. */
export function across(side) {
  if (columns.length < 2 || !current || current.side === side || !columns[side].length) return;
  const rows = columns[side];
  const place = columns[current.side]?.indexOf(current) ?? 0;
  go(twin(current) ?? rows[Math.min(Math.max(place, 0), rows.length - 1)], focusedKind());
}
