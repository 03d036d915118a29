// The history of texts, kept until the page is closed: their beginnings, labels and whether feedback was saved.

import { having, isDecided, isKept, isUnsent, lines } from "./decisions.js";
import { beginning, byId, make, words } from "./dom.js";

const entries = []; // oldest first
let handler = () => {};

export function listen(bring) {
  handler = bring;
  byId("download").addEventListener("click", download);
  window.addEventListener("beforeunload", (event) => {
    if (entries.some(isUnsent)) event.preventDefault();
  });
}

export const known = (text) => entries.find((entry) => entry.text === text) ?? null;

/** Add a tagged text; one that was tagged before becomes the newest. */
export function remember(entry) {
  const at = entries.indexOf(entry);
  if (at >= 0) entries.splice(at, 1);
  entries.push(entry);
}

/** Draw the list, newest first. */
export function draw(current) {
  byId("visit").hidden = entries.length === 0;
  byId("download").hidden = !entries.some(isDecided);
  byId("texts").replaceChildren(...[...entries].reverse().map((entry) => {
    const accepted = having(entry, "accepted");
    const labels = accepted.length ? accepted : (entry.results[0]?.labels ?? []).slice(0, 3);
    const state = isKept(entry) ? "saved" : isUnsent(entry) ? "not saved" : "";
    const button = make("button", { type: "button", "aria-current": entry === current ? "true" : null },
      words("span", beginning(entry.text), { class: "begins" }),
      state ? make("span", { class: `state small ${state === "saved" ? "kept" : "unsent"}` }, state) : null,
      words("span", labels.map((label) => label.name).join(" · "), { class: "faint small labels" }));
    button.addEventListener("click", () => handler(entry));
    return make("li", {}, button);
  }));
}

function download() {
  const address = URL.createObjectURL(new Blob([lines(entries)], { type: "application/x-ndjson" }));
  const link = make("a", { href: address, download: "feedback.jsonl" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
