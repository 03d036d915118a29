// Copy a ranking to the clipboard: names, or a tab-separated table for a spreadsheet.

import { make, plural } from "./dom.js";
import { complain, say } from "./status.js";

const clean = (text) => text.replace(/[\t\r\n]+/g, " ");
export const names = (labels) => labels.map((label) => clean(label.name)).join("\n");
export const table = (labels) =>
  labels.map((label) => [clean(label.name), clean(label.key), String(label.score)].join("\t")).join("\n");

export function copyButtons(result) {
  const { labels } = result;
  const button = (text, made) =>
    make("button", { type: "button", class: "quiet", onclick: () => copy(made(labels), labels.length) }, text);
  return make("div", { class: "actions" }, button("Copy names", names), button("Copy as table", table));
}

async function copy(text, count) {
  try {
    await write(text);
    say(`Copied: ${plural(count, "label")}.`);
  } catch {
    complain(new Error("The browser does not allow copying to the clipboard. Select the labels and copy them manually."));
  }
}

/** Use the Clipboard API, or a selection where the API is unavailable (pages without TLS). */
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const field = make("textarea", { class: "unseen", "aria-hidden": "true" });
  const before = document.activeElement;
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  before?.focus();
  if (!done) throw new Error("not copied");
  return undefined;
}
