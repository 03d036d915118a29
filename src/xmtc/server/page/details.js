// What the vocabulary says about a label: a small line with the broader labels, and notes that can be unfolded.

import { make, words } from "./dom.js";

const UNUSED = "no training documents";

/** The line beneath a label: broader labels, and a mark if no training document has the label; null if there is neither. */
export function line(label) {
  const broader = label.broader ?? [];
  const parts = [
    ...(broader.length ? [words("span", `↑ ${broader.join(" · ")}`, { class: "broader", title: "broader labels" })] : []),
    ...(label.documents === 0 ? [make("span", { class: "unused" }, UNUSED)] : []),
  ];
  return parts.length ? make("span", { class: "details" }, ...parts) : null;
}

/** Description and notes, folded; null if there are none. */
export function notes(label) {
  const texts = [label.description, ...(label.notes ?? [])].filter((text) => text);
  if (!texts.length) return null;
  return make("details", { class: "notes small" },
    make("summary", { class: "faint" }, "Notes"),
    ...texts.map((text) => words("p", text)));
}
